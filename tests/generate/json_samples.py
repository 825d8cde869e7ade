"""Schemas, documents that fit them, and a small validator of its own: what grammars are tested against."""

import random
import re
from typing import Any

TREE = {
    "type": "object",
    "properties": {
        "value": {"type": "integer"},
        "left": {"$ref": "#/$defs/tree"},
        "right": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
    },
    "required": ["value", "right"],
}
SCHEMAS: list[Any] = [
    {
        "title": "A person",
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "mood": {"enum": ["good", "bad", 'é中"\\', 3, None]},
            "score": {"type": "number", "minimum": -1, "exclusiveMaximum": 1},
        },
        "required": ["name", "mood"],
    },
    {"type": "array", "items": {"type": ["integer", "boolean", "null"]}, "minItems": 1, "maxItems": 4},
    {"$ref": "#/$defs/tree", "$defs": {"tree": TREE}},
    {"prefixItems": [{"type": "string"}, {"type": "number"}], "items": {"const": [1, {"a": "b"}]}, "maxItems": 4},
    {"properties": {"a": {"type": "null"}, "ab": {"type": "boolean"}}, "additionalProperties": {"type": "string"}},
    {"properties": {"date": {"type": "string", "pattern": r"^\d{4}-(0[1-9]|1[0-2])$"}}, "required": ["date"]},
    {
        "oneOf": [
            {"type": "object", "properties": {"t": {"const": "x"}, "n": {"type": "number"}}, "required": ["t", "n"]},
            {"type": "object", "properties": {"t": {"const": "y"}, "s": {"type": "string"}}, "required": ["t"]},
        ]
    },
    {"properties": {"any": True, "list": {"items": {"anyOf": [{"type": "string"}, {"type": "number"}]}}}},
]
CHARACTERS = 'abc xyz019.,:{}[]-é中文😀"\\/\n\t'


def document(schema: Any, rng: random.Random, root: Any = None, depth: int = 3) -> Any:
    """A value that fits, its properties in the order of the schema."""
    root = schema if root is None else root
    if schema is True or schema == {}:
        schema = {"type": ["null", "integer", "string", "array", "object"] if depth > 0 else ["null", "string"]}
    if "$ref" in schema:
        return document(root["$defs"][schema["$ref"].split("/")[-1]], rng, root, depth - 1)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            options = schema[key]
            return document(options[-1] if depth <= 0 else rng.choice(options), rng, root, depth)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else rng.choice(schema["enum"])
    kind = schema.get("type") or ("array" if schema.keys() & {"items", "prefixItems"} else "object")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "null":
        return None
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "integer":
        return rng.randint(schema.get("minimum", -(10**9)), schema.get("maximum", 10**9))
    if kind == "number":
        if "minimum" in schema:
            return round(rng.uniform(-0.99, 0.99), rng.randint(1, 6))
        return rng.choice([rng.randint(-99, 99), rng.uniform(-1e6, 1e6), rng.uniform(-1, 1) * 1e-30, 1e50, 0])
    if kind == "string":
        if "pattern" in schema:
            return f"{rng.randint(1000, 9999)}-{rng.randint(1, 12):02}"
        length = rng.randint(schema.get("minLength", 0), schema.get("maxLength", 8))
        return "".join(rng.choice(CHARACTERS) for _ in range(length))
    if kind == "array":
        first = schema.get("prefixItems", [])
        count = rng.randint(schema.get("minItems", 0), schema.get("maxItems", 3))
        rest = schema.get("items", True)
        return [document(first[n] if n < len(first) else rest, rng, root, depth - 1) for n in range(count)]
    found = {}
    for name, inner in schema.get("properties", {}).items():
        if name in schema.get("required", ()) or (depth > 0 and rng.random() < 0.6):
            found[name] = document(inner, rng, root, depth - 1)
    if "additionalProperties" in schema:
        for name in rng.sample(["x", "abc", "é", "", "a b"], rng.randint(0, 3)):
            found[name] = document(schema["additionalProperties"], rng, root, depth - 1)
    return found


def spoilt(text: str, rng: random.Random) -> str:
    """The text with one character lost, doubled, changed or exchanged for its neighbour."""
    at = rng.randrange(len(text))
    new = rng.choice(["", text[at] * 2, rng.choice('{}[]",:0.-e1 ntf\\u\n'), " " + text[at], text[at : at + 2][::-1]])
    return text[:at] + new + text[at + max(1, len(new) if new == text[at : at + 2][::-1] else 1) :]


def fits(schema: Any, value: Any, root: Any = None) -> bool:
    """What JSON Schema says, for the keywords used here."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and not fits(root["$defs"][schema["$ref"].split("/")[-1]], value, root):
        return False
    number = isinstance(value, int | float) and not isinstance(value, bool)
    kinds = {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "integer": number and float(value).is_integer(),
        "number": number,
        "string": isinstance(value, str),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    wanted = schema.get("type", list(kinds))
    if not any(kinds[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted)):
        return False
    same = [_same(value, other) for other in schema.get("enum", [schema["const"]] if "const" in schema else [])]
    checks = [not ("enum" in schema or "const" in schema) or any(same)]
    if "anyOf" in schema:
        checks.append(any(fits(option, value, root) for option in schema["anyOf"]))
    if "oneOf" in schema:
        checks.append(sum(fits(option, value, root) for option in schema["oneOf"]) == 1)
    if number:
        checks.append(value >= schema.get("minimum", value))
        checks.append(value <= schema.get("maximum", value))
        checks.append("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
    if isinstance(value, str):
        checks.append(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)))
        checks.append(re.search(schema.get("pattern", ""), value, re.ASCII) is not None)
    if isinstance(value, list):
        checks.append(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)))
        first = schema.get("prefixItems", [])
        inner = [first[n] if n < len(first) else schema.get("items", True) for n in range(len(value))]
        checks += [fits(one, item, root) for one, item in zip(inner, value, strict=True)]
    if isinstance(value, dict):
        checks += [name in value for name in schema.get("required", ())]
        named = schema.get("properties", {})
        other = schema.get("additionalProperties", True)
        checks += [fits(named.get(name, other), item, root) for name, item in value.items()]
    return all(checks)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return one == other
