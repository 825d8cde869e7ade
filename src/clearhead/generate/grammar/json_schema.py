"""Turns a JSON schema into the parts of an automaton, so that what is written is valid from the first byte on.

What is written is JSON in one manner: no spaces but at most one after `:` and `,`; properties in the order of the
schema, optional ones left out or not; keys and fixed values spelled as `json.dumps(…, ensure_ascii=False)` does;
whole numbers as digits, up to 18 of them, fractions up to 17, exponents up to two (more would overflow).

Where a schema leaves open what JSON Schema would allow, the narrow meaning is taken, which is always valid:
an object with `properties` has no others unless `additionalProperties` says so, an array with `prefixItems` nothing
after them unless `items` says so, and `properties` without a `type` means an object (`items` an array, and so on).
Other properties come after those of the schema, and their keys need no escapes. `$ref` may be recursive: it, and the
values of a schema that allows anything, are nested up to `max_depth` times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from clearhead.errors import InputError, did_you_mean
from clearhead.generate.grammar.automaton import (
    EMPTY,
    NOTHING,
    Alternation,
    Concatenation,
    Expression,
    Ranges,
    Repetition,
    byte,
    characters,
    complement,
    literal,
    optional,
)
from clearhead.generate.grammar.regex import parse_regex, parse_search

_KINDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "boolean": set(),
    "null": set(),
}  # each type with the keywords that are about it
_ABOUT_TYPES = set().union(*_KINDS.values())
_COMPLETE_KEYWORDS = ("anyOf", "oneOf", "allOf", "$ref", "enum", "const")  # each says all there is, but for a type
_NOTES = set(
    "title description default examples example $schema $id $comment $defs definitions deprecated readOnly writeOnly "
    "discriminator".split()
)
_KNOWN = {"type", *_ABOUT_TYPES, *_COMPLETE_KEYWORDS}

_DIGITS, _FRACTION = 18, 17
_DIGIT = byte(0x30, 0x39)
_INTEGER = parse_regex(rf"0|-?[1-9]\d{{0,{_DIGITS - 1}}}")
_NUMBER = parse_regex(rf"-?(?:0|[1-9]\d{{0,{_DIGITS - 1}}})(?:\.\d{{1,{_FRACTION}}})?(?:[eE][+-]?\d{{1,2}})?")
_COMMA, _COLON = parse_regex(", ?"), parse_regex(": ?")
_QUOTE = literal('"')
_BARE = complement([(0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C)])  # characters that stand for themselves in a string
_HEX = "[0-9A-Fa-f]"
_ESCAPE = parse_regex(
    rf'\\(?:["\\/bfnrt]|u(?:[0-9A-Ca-cEFef]{_HEX}{{3}}|[Dd][0-7]{_HEX}{{2}}'
    rf"|[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]{_HEX}{{2}}))"  # a character beyond 0xFFFF is a pair
)
_CHARACTER = Alternation([characters(_BARE), _ESCAPE])
_ANYTHING = {"type": [kind for kind in _KINDS if kind != "integer"]}


def parse_schema(schema: Mapping[str, Any] | bool, max_depth: int = 16) -> Expression:
    """The JSON texts that are valid."""
    if not isinstance(max_depth, int) or isinstance(max_depth, bool) or max_depth < 1:
        raise InputError(f"max_depth must be a whole number of at least 1, but it is {max_depth!r}.")
    part = _Schemas(schema).part("#", schema, max_depth)
    if not part.possible:
        raise InputError(
            f"No JSON text can satisfy this schema, or only one nested deeper than max_depth={max_depth}. "
            "Look for contradictory limits, for required properties that additionalProperties forbids, and for a "
            "$ref that always needs itself."
        )
    return part


class _Schemas:
    """A schema with everything it refers to. `path` is the place in it, for messages and to find it again."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._parts: dict[tuple[str, int], Expression] = {}

    def part(self, path: str, schema: Any, depth: int) -> Expression:
        key = path, depth
        if key not in self._parts:
            self._parts[key] = self._new_part(path, schema, depth)
        return self._parts[key]

    def _new_part(self, path: str, schema: Any, depth: int) -> Expression:
        schema = _checked(path, schema)
        if schema is False:
            return NOTHING
        if schema is True or not schema.keys() & _KNOWN:
            return self.part("anything", _ANYTHING, depth - 1) if depth else NOTHING
        keywords = [name for name in _COMPLETE_KEYWORDS if name in schema]
        if not keywords:
            return Alternation([getattr(self, f"_{kind}")(path, schema, depth) for kind in _types(path, schema)])
        also = schema.keys() & _KNOWN - {keywords[0]} - ({"type"} if keywords[0] in ("enum", "const") else set())
        if also:
            raise InputError(
                f"{keywords[0]} at {path} stands beside {', '.join(sorted(also))}; both at once are not implemented. "
                f"Put everything into the alternatives of {keywords[0]}, or leave one out."
            )
        if keywords[0] == "$ref":
            return self.part(*self._follow_ref(path, schema["$ref"]), depth - 1) if depth else NOTHING
        if keywords[0] in ("enum", "const"):
            kinds = _types(path, schema)
            return Alternation(
                [_fixed_value(value) for value in _values(path, schema) if _types_of(value) & set(kinds)]
            )
        options = schema[keywords[0]]
        if not isinstance(options, list) or not options:
            raise InputError(f"{keywords[0]} at {path} must be a list of schemas that is not empty.")
        if keywords[0] == "allOf" and len(options) > 1:
            raise InputError(f"allOf at {path} with more than one schema is not implemented. Merge them into one.")
        if keywords[0] == "oneOf":
            self._check_disjoint(path, options)
        return Alternation([self.part(f"{path}/{keywords[0]}/{n}", option, depth) for n, option in enumerate(options)])

    def _follow_ref(self, path: str, pointer: Any) -> tuple[str, Any]:
        """What a $ref means."""
        if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
            raise InputError(f"$ref at {path} is {pointer!r}; only places in the same schema are read, '#/$defs/…'.")
        target = self.root
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and step.isdigit() and int(step) < len(target):
                target = target[int(step)]
            elif isinstance(target, dict) and step in target:
                target = target[step]
            else:
                near = did_you_mean(step, target) if isinstance(target, dict) else ""
                raise InputError(f"$ref at {path} is {pointer!r}, but the schema has no {step!r} there.{near}")
        return pointer, target

    # ---- one type each

    def _null(self, path: str, schema: Any, depth: int) -> Expression:
        return literal("null")

    def _boolean(self, path: str, schema: Any, depth: int) -> Expression:
        return Alternation([literal("true"), literal("false")])

    def _string(self, path: str, schema: Any, depth: int) -> Expression:
        minimum, maximum = _limits(path, schema, "minLength", "maxLength")
        if "pattern" not in schema:
            return Concatenation([_QUOTE, Repetition(_CHARACTER, minimum, maximum), _QUOTE])
        if minimum or maximum is not None:
            raise InputError(f"pattern at {path} stands beside a length; put the length into the pattern: {{m,n}}.")
        try:
            return Concatenation([_QUOTE, parse_search(schema["pattern"], _json_character), _QUOTE])
        except InputError as error:
            raise InputError(f"pattern at {path}: {error}") from error

    def _integer(self, path: str, schema: Any, depth: int) -> Expression:
        low, low_open, high, high_open = _bounds(path, schema)
        if low is None and high is None:
            return _INTEGER
        minimum = None if low is None else math.floor(low) + 1 if low_open else math.ceil(low)
        maximum = None if high is None else math.ceil(high) - 1 if high_open else math.floor(high)
        size = _unbounded(minimum, maximum)
        minimum, maximum = -size if minimum is None else minimum, size if maximum is None else maximum
        return Alternation(
            [_integers(max(minimum, 0), maximum), Concatenation([literal("-"), _integers(max(-maximum, 1), -minimum)])]
        )

    def _number(self, path: str, schema: Any, depth: int) -> Expression:
        low, low_open, high, high_open = _bounds(path, schema)
        if low is None and high is None:
            return _NUMBER
        if any(bound is not None and bound != int(bound) for bound in (low, high)):
            raise InputError(f"A limit of the number at {path} is a fraction; only whole ones are implemented.")
        size = _unbounded(low, high)
        minimum, maximum = int(-size if low is None else low), int(size if high is None else high)
        parts = []
        if maximum >= 0:
            parts.append(_numbers(max(minimum, 0), maximum, low_open and minimum >= 0, high_open))
        if minimum < 0:
            below = _numbers(max(-maximum, 0), -minimum, high_open and maximum <= 0, low_open)
            parts.append(Concatenation([literal("-"), below]))
        return Alternation(parts)

    def _array(self, path: str, schema: Any, depth: int) -> Expression:
        minimum, maximum = _limits(path, schema, "minItems", "maxItems")
        prefix = schema.get("prefixItems", [])
        if not isinstance(prefix, list):
            raise InputError(f"prefixItems at {path} must be a list of schemas.")
        if isinstance(schema.get("items"), list):
            raise InputError(f"items at {path} is a list, as older schemas write it. Name it prefixItems.")
        open_end = "items" in schema or not prefix or minimum > len(prefix)
        item = self.part(f"{path}/items", schema.get("items", True), depth) if open_end else NOTHING
        parts = [self.part(f"{path}/prefixItems/{n}", item_schema, depth) for n, item_schema in enumerate(prefix)][
            :maximum
        ]
        count = len(parts)
        # from the end to the front: what may follow the items so far
        tail: Expression = Repetition(
            Concatenation([_COMMA, item]), max(minimum - count, 0), None if maximum is None else maximum - count
        )
        if count == 0:
            many = Concatenation(
                [
                    item,
                    Repetition(
                        Concatenation([_COMMA, item]), max(minimum - 1, 0), None if maximum is None else maximum - 1
                    ),
                ]
            )
            inside = Alternation([EMPTY if minimum == 0 else NOTHING, NOTHING if maximum == 0 else many])
            return Concatenation([literal("["), inside, literal("]")])
        for n in reversed(range(1, count)):
            more: Expression = Concatenation([_COMMA, parts[n], tail])
            tail = more if n < minimum else optional(more)
        inside = Alternation([EMPTY if minimum == 0 else NOTHING, Concatenation([parts[0], tail])])
        return Concatenation([literal("["), inside, literal("]")])

    def _object(self, path: str, schema: Any, depth: int) -> Expression:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict):
            raise InputError(f"properties at {path} must be an object of schemas.")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise InputError(f"required at {path} must be a list of names.")
        # a schema that names no properties is about any object
        other = schema.get("additionalProperties", not properties)
        other_path = f"{path}/additionalProperties"
        pairs: list[tuple[Expression, bool]] = []
        for name in [*properties, *(name for name in dict.fromkeys(required) if name not in properties)]:
            if name in properties:
                step = name.replace("~", "~0").replace("/", "~1")
                value = self.part(f"{path}/properties/{step}", properties[name], depth)
            else:
                value = self.part(other_path, schema.get("additionalProperties", True), depth)
            pairs.append((Concatenation([_fixed_value(name), _COLON, value]), name in required))
        unlisted = _any_key_but([*properties, *required])
        extra = Concatenation([_QUOTE, unlisted, _QUOTE, _COLON, self.part(other_path, other, depth)])
        # from the end to the front: what may follow once something is there, and while nothing is
        after: Expression = Repetition(Concatenation([_COMMA, extra]))
        begin: Expression = optional(Concatenation([extra, after]))
        for pair, needed in reversed(pairs):
            begin = Alternation([Concatenation([pair, after]), NOTHING if needed else begin])
            after = Alternation([Concatenation([_COMMA, pair, after]), NOTHING if needed else after])
        return Concatenation([literal("{"), begin, literal("}")])

    # ---- oneOf: exactly one alternative may hold, so no value may fit two

    def _check_disjoint(self, path: str, options: list[Any]) -> None:
        for n, option in enumerate(options):
            for m, other in enumerate(options[:n]):
                if not self._are_disjoint(option, other, 4):
                    raise InputError(
                        f"oneOf at {path}: a value may fit alternatives {m} and {n} at once, which oneOf forbids. "
                        "Use anyOf, or give both a required property with different const values."
                    )

    def _are_disjoint(self, schema_a: Any, schema_b: Any, depth: int) -> bool:
        """Whether it is certain that no value fits both."""
        if not depth:
            return False
        schema_a, schema_b = (self._resolved(schema) for schema in (schema_a, schema_b))
        for left, right in ((schema_a, schema_b), (schema_b, schema_a)):
            if left is False:
                return True
            if left is True or not left:
                return False
            for name in ("anyOf", "oneOf", "allOf"):
                if name in left:
                    return all(self._are_disjoint(option, right, depth - 1) for option in left[name])
        if all("enum" in schema or "const" in schema for schema in (schema_a, schema_b)):
            keys = [{_equality_key(value) for value in _values("oneOf", schema)} for schema in (schema_a, schema_b)]
            return not keys[0] & keys[1]
        shared = _possible_types(schema_a) & _possible_types(schema_b)
        if shared != {"object"}:
            return not shared
        named = set(schema_a.get("required", ())) & set(schema_b.get("required", ()))
        pairs = [
            [schema.get("properties", {}).get(name, True) for schema in (schema_a, schema_b)] for name in sorted(named)
        ]
        return any(self._are_disjoint(left, right, depth - 1) for left, right in pairs)

    def _resolved(self, schema: Any) -> Any:
        for _ in range(16):
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            schema = self._follow_ref("oneOf", schema["$ref"])[1]
        return schema


# ---- reading keywords


def _checked(path: str, schema: Any) -> Any:
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping):
        raise InputError(f"The schema at {path} must be an object, true or false, not {type(schema).__name__}.")
    unknown = [name for name in schema if name not in _KNOWN | _NOTES]
    if unknown:
        hint = did_you_mean(str(unknown[0]), _KNOWN) or " Leave it out, or say it with the others."
        raise InputError(f"The schema at {path} has {unknown[0]!r}, which is not implemented.{hint}")
    return schema


def _types(path: str, schema: Mapping[str, Any]) -> list[str]:
    """The types a schema allows: what it says, or what its keywords are about, or all."""
    if "type" not in schema:
        about = [kind for kind in _KINDS if schema.keys() & _KINDS[kind]]
        return [kind for kind in about or _KINDS if kind != "integer"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    for kind in kinds:
        if kind not in _KINDS:
            near = did_you_mean(str(kind), _KINDS)
            raise InputError(f"type at {path} is {kind!r}; it must be one of {', '.join(_KINDS)}.{near}")
    return list(dict.fromkeys(kinds))


def _values(path: str, schema: Mapping[str, Any]) -> list[Any]:
    values = [schema["const"]] if "const" in schema else schema["enum"]
    if not isinstance(values, list) or not values:
        raise InputError(f"enum at {path} must be a list that is not empty.")
    return values


def _limits(path: str, schema: Mapping[str, Any], minimum: str, maximum: str) -> tuple[int, int | None]:
    for name in (minimum, maximum):
        value = schema.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputError(f"{name} at {path} must be a whole number from 0, but it is {value!r}.")
    if maximum in schema and schema.get(minimum, 0) > schema[maximum]:
        raise InputError(f"{minimum} at {path} is {schema[minimum]}, above {maximum} = {schema[maximum]}.")
    return schema.get(minimum, 0), schema.get(maximum)


_Bound = int | float | None


def _bounds(path: str, schema: Mapping[str, Any]) -> tuple[_Bound, bool, _Bound, bool]:
    """The lower limit, whether it is excluded; the upper limit, whether it is excluded."""
    for name in sorted(_KINDS["number"] & schema.keys()):
        value = schema[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise InputError(f"{name} at {path} must be a number, but it is {value!r}.")
    lows = [(schema[name], name != "minimum") for name in ("minimum", "exclusiveMinimum") if name in schema]
    highs = [(schema[name], name == "maximum") for name in ("maximum", "exclusiveMaximum") if name in schema]
    low, low_open = max(lows, default=(None, False))
    high, high_closed = min(highs, default=(None, True))
    return low, low_open, high, not high_closed


def _types_of(value: Any) -> set[str]:
    """The types that a value has."""
    if value is None:
        return {"null"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int | float):
        return {"number", "integer"} if isinstance(value, int) or value.is_integer() else {"number"}
    return {"string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"}


def _possible_types(schema: Mapping[str, Any]) -> set[str]:
    """The types that values of a schema may have; a number may be a whole one."""
    if "enum" in schema or "const" in schema:
        return set().union(*(_types_of(value) for value in _values("oneOf", schema)))
    if "type" not in schema:  # JSON Schema's meaning: keywords say nothing about other types
        return set(_KINDS)
    kinds = set(_types("oneOf", schema))
    return kinds | ({"integer"} if "number" in kinds else set())


def _equality_key(value: Any) -> tuple[str, Any]:
    """Equal for values that JSON calls equal."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number", value
    return "", json.dumps(value, sort_keys=True)


# ---- writing values


def _fixed_value(value: Any) -> Expression:
    """A fixed value, with the freedom of a space that all values have."""
    if isinstance(value, dict):
        pairs = [Concatenation([_fixed_value(str(name)), _COLON, _fixed_value(item)]) for name, item in value.items()]
        return Concatenation([literal("{"), *_comma_separated(pairs), literal("}")])
    if isinstance(value, list):
        return Concatenation([literal("["), *_comma_separated([_fixed_value(item) for item in value]), literal("]")])
    try:
        return literal(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"The schema has the value {value!r}, which JSON cannot write: {error}.") from error


def _comma_separated(parts: Iterable[Expression]) -> list[Expression]:
    return [item for part in parts for item in (_COMMA, part)][1:]


def _json_character(ranges: Ranges) -> Expression:
    """One character of a pattern, as it stands in a JSON string: escaped where it must be, and only there."""
    special = [code for code in (*range(0x20), 0x22, 0x5C) if any(low <= code <= high for low, high in ranges)]
    return Alternation(
        [characters(_intersection(ranges, _BARE)), *(literal(json.dumps(chr(code))[1:-1]) for code in special)]
    )


def _any_key_but(names: Iterable[str]) -> Expression:
    """The inside of a key that is none of these."""
    rest = set(names)
    firsts = {name[0] for name in rest if name}
    taken = [(ord(char),) * 2 for char in firsts]
    parts: list[Expression] = [] if "" in rest else [EMPTY]
    parts.append(Concatenation([characters(_intersection(_BARE, complement(taken))), Repetition(characters(_BARE))]))
    for char in sorted(firsts):
        if _intersection(_BARE, [(ord(char),) * 2]):
            parts.append(Concatenation([literal(char), _any_key_but(name[1:] for name in rest if name[:1] == char)]))
    return Alternation(parts)


def _intersection(ranges: Ranges, others: Ranges) -> list[tuple[int, int]]:
    """The characters in both."""
    overlaps = [(max(low, first), min(high, last)) for low, high in ranges for first, last in others]
    return [(low, high) for low, high in overlaps if low <= high]


# ---- numbers within limits


def _unbounded(*bounds: _Bound) -> int:
    """How far numbers go on the side without a limit."""
    return max(10**_DIGITS - 1, *(10 * abs(int(bound)) for bound in bounds if bound is not None))


def _integers(minimum: int, maximum: int) -> Expression:
    """The whole numbers from minimum (not below 0) to maximum."""
    parts = []
    for length in range(len(str(minimum)), len(str(max(maximum, 0))) + 1):
        low, high = max(minimum, 10 ** (length - 1) if length > 1 else 0), min(maximum, 10**length - 1)
        if low <= high:
            parts.append(_digits_between(str(low), str(high)))
    return Alternation(parts)


def _digits_between(low: str, high: str) -> Expression:
    """Digits from one text to another of the same length."""
    if not low:
        return EMPTY
    free = len(low) - 1
    if low == "0" * len(low) and high == "9" * len(low):
        return Repetition(_DIGIT, len(low), len(low))
    if low[0] == high[0]:
        return Concatenation([literal(low[0]), _digits_between(low[1:], high[1:])])
    parts = [
        Concatenation([literal(low[0]), _digits_between(low[1:], "9" * free)]),
        Concatenation([literal(high[0]), _digits_between("0" * free, high[1:])]),
    ]
    if ord(high[0]) - ord(low[0]) > 1:
        parts.append(Concatenation([byte(ord(low[0]) + 1, ord(high[0]) - 1), Repetition(_DIGIT, free, free)]))
    return Alternation(parts)


def _numbers(minimum: int, maximum: int, exclude_minimum: bool, exclude_maximum: bool) -> Expression:
    """The numbers from minimum (not below 0) to maximum, with or without a fraction."""
    fraction = parse_regex(rf"\.\d{{1,{_FRACTION}}}")
    parts: list[Expression] = []
    if minimum < maximum:
        nonzero = parse_regex(rf"\.0{{0,{_FRACTION - 1}}}[1-9]\d{{0,{_FRACTION - 1}}}")
        parts.append(Concatenation([literal(str(minimum)), nonzero if exclude_minimum else optional(fraction)]))
        parts.append(Concatenation([_integers(minimum + 1, maximum - 1), optional(fraction)]))
    if minimum < maximum or (minimum == maximum and not exclude_minimum):
        zero = optional(parse_regex(rf"\.0{{1,{_FRACTION}}}"))
        parts.append(NOTHING if exclude_maximum else Concatenation([literal(str(maximum)), zero]))
    return Alternation(parts)
