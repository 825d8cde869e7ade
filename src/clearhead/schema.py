"""Fields: what a value may be, said once (type, default, bounds, help), and the one check that every reader uses.

A `Field` describes one value. The options of generation, a question's parameters, a recipe's keys and a model's
configuration are tables of them: written out, or as a dataclass whose annotations carry them.

    top_p: Annotated[float | None, Field(help="Keep the likeliest that reach this share.", above=0, most=1)] = None

    fields_of(Options)["top_p"].check(1.5)   # InputError: top_p is 1.5; it must be a number above 0 and at most 1.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

from clearhead.errors import InputError, did_you_mean
from clearhead.messages import say

LARGEST = 2**63  # a number of more than 64 bits is a mistake
LINE = 60  # characters of a value in a message
_YES, _NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")

T = TypeVar("T")
MakeError = Callable[[str], Exception]


@dataclass(frozen=True, kw_only=True)
class Field:
    """
    type          as an annotation writes it: int, float, bool, str, Any, Literal["a", "b"], list[…], tuple[int, float],
                  dict[str, …], a dataclass, unions of these. With None in it, or None as its default, it may be None
    choices       the values it can have, where `type` is no Literal that lists them
    least, most   bounds of a number that it may reach; `above` and `below`: bounds that it may not
    longest       the most characters of a text, or items of a list
    test          whatever else has to hold (in an annotation: a function by its name); `expected` says what in words
    expected      what the value must be, where the words that follow from the type are not the best
    hint          a sentence more for whoever got it wrong
    group         what it stands under in a list; `flags` and `metavar`: how a command line spells it
    needs         the field of the same table without which this one has no effect
    """

    name: str = ""
    type: Any = Any
    default: Any = None
    help: str = ""
    choices: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    longest: int | None = None
    test: Callable[[Any], bool] | None = None
    expected: str = ""
    hint: str = ""
    group: str = ""
    flags: tuple[str, ...] = ()
    metavar: str = ""
    needs: str = ""

    def __post_init__(self) -> None:
        if self.choices and self.type is Any:
            object.__setattr__(self, "type", Literal[self.choices])
        literals = [part for part in _alternatives(self.type) if get_origin(part) is Literal]
        if literals and not self.choices:
            object.__setattr__(self, "choices", tuple(c for part in literals for c in get_args(part)))

    def check(self, value: Any, *, spelled: bool = False, error: MakeError = InputError) -> Any:
        """The value in its own type. What it must not be raises `error` with a sentence that says so.

        spelled   it comes from a form or a file, where "1e-4", 3.0 (for 3) and "yes" stand for what they spell
        """
        if value is None and self.default is None:
            return None
        try:
            value = self.read(value, spelled)
        except Mismatch as wrong:
            self._refuse(wrong, error)
        if self.test is not None and value is not None and not self.test(value):
            self._refuse(Mismatch(value, self.words), error)
        return value

    def parse(self, value: Any, *, error: MakeError = InputError) -> Any:
        """The value of a form's field, or of a word on a command line: nothing at all means the default."""
        if value is None or (isinstance(value, str) and not value.strip() and self.kind != "text") or value == "":
            return self.default
        return self.check(value, spelled=True, error=error)

    def read(self, value: Any, spelled: bool) -> Any:
        """The value in its own type, or a Mismatch. A field of a kind of its own has a reader of its own here."""
        return _read(value, self.type, self, spelled)

    def _refuse(self, wrong: Mismatch, error: MakeError) -> NoReturn:
        expected = (not wrong.path and self.expected) or wrong.expected
        near = did_you_mean(wrong.value, map(str, self.choices)) if isinstance(wrong.value, str) else ""
        hint = f" {self.hint}" if self.hint else ""
        name, value = f"{self.name}{wrong.path}", shown(wrong.value)
        sentence = wrong.sentence or say("schema.wrong", name=name, value=value, expected=expected)
        raise error(say("schema.with_hints", sentence=sentence, hint=hint, near=near)) from None

    @property
    def kind(self) -> str:
        """What a form shows: int, float, bool, text, choice; for anything else, value."""
        parts = {_kind(part) for part in _alternatives(self.type)}
        inner = {_kind(get_args(part)[0]) for part in _alternatives(self.type) if _is_list(part) and get_args(part)}
        if self.choices:
            return "choice"
        both = (parts - {"list"}) | inner
        return both.pop() if len(both) == 1 else "value"

    @property
    def several(self) -> bool:
        """Whether it may be a list."""
        return any(map(_is_list, _alternatives(self.type)))

    @property
    def words(self) -> str:
        """What the value must be."""
        return self.expected or _words(self.type, self)

    @property
    def bounds(self) -> str:
        """What a number can be; empty where it can be any."""
        return _bounds(self)

    def to_dict(self) -> dict[str, Any]:
        """All that a form needs to know, as plain data."""
        plain = ("name", "default", "help", "group", "least", "most", "above", "below", "longest", "metavar")
        shape = {"kind": self.kind, "several": self.several, "choices": list(self.choices)}
        return {name: None if (v := getattr(self, name)) is dataclasses.MISSING else v for name in plain} | shape


class Mismatch(Exception):
    """A value that is not what it must be: where inside the field, and what was expected there."""

    def __init__(self, value: Any, expected: str = "", path: str = "", sentence: str = "") -> None:
        super().__init__(value, expected, path, sentence)
        self.value, self.expected, self.path, self.sentence = value, expected, path, sentence


# ---- tables of fields


def fields_of(cls: type) -> dict[str, Field]:
    """The fields of a dataclass: type and default as it declares them, the rest from `Annotated[…, Field(…)]`."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {}
    for declared in dataclasses.fields(cls):
        factory = declared.default_factory
        default = declared.default if factory is dataclasses.MISSING else factory()
        fields[declared.name] = field_of(declared.name, hints[declared.name], default)
    return fields


def field_of(name: str, hint: Any, default: Any = dataclasses.MISSING) -> Field:
    """One field, from its type: plain, or `Annotated[…, Field(…)]`.

    default   dataclasses.MISSING: there is none, so that None does not pass for it
    """
    declared = Field()
    if get_origin(hint) is Annotated:
        declared = next((part for part in hint.__metadata__ if isinstance(part, Field)), declared)
        hint = get_args(hint)[0]
    return dataclasses.replace(declared, name=declared.name or name, type=hint, default=default)


def check_names(names: Iterable[Any], known: Iterable[str], whose: str, error: MakeError = InputError) -> None:
    """Refuse a name that is not known, with those that are near. `whose` begins the sentence: "It has no option"."""
    known = list(known)
    for name in names:
        if name not in known:
            near = did_you_mean(str(name)[:LINE], known)
            raise error(say("schema.unknown_name", whose=whose, name=shown(name), near=near))


def build(cls: type[T], table: Mapping[str, Any], *, spelled: bool = False, error: MakeError = InputError) -> T:
    """A dataclass from a table of its fields, each checked; an unknown key is an error that names the near one."""
    return _build(cls, table, "", spelled, error, paths_of(cls))


def paths_of(cls: Any, path: str = "") -> list[str]:
    """Every field of a dataclass and of those inside it: "steps", "optimizer.lr" …"""
    paths = []
    for name, field in fields_of(cls).items():
        inner = _inner_table(field.type)
        paths += [path + name] if inner is None else paths_of(inner, f"{path}{name}.")
    return paths


def near_key(key: str, known: Iterable[str], paths: Iterable[str]) -> str:
    """What an unknown key may have meant: one of that name in another table, or one near it in its own."""
    name = key.rpartition(".")[2]
    same_name = [path for path in paths if name in (path.rpartition(".")[2], path.replace(".", "_"))]
    if not same_name:
        return did_you_mean(name[:LINE], known)
    names = reduce(lambda first, second: say("errors.or", first=first, second=second), same_name[:3])
    return say("errors.did_you_mean", names=names)


def _inner_table(hint: Any) -> Any:
    return next((part for part in _alternatives(hint) if dataclasses.is_dataclass(part)), None)


def _build(cls: Any, table: Mapping[str, Any], path: str, spelled: bool, error: MakeError, paths: list[str]) -> Any:
    known = fields_of(cls)
    for key in table:
        if key not in known:
            near = near_key(str(key), known, paths)
            raise error(say("schema.unknown_key", name=shown(f"{path}{key}"), near=near, known=sorted(known)))
    values = {}
    for key, value in table.items():
        field = dataclasses.replace(known[key], name=path + key)
        inner = _inner_table(field.type)
        if inner is not None and (isinstance(value, Mapping) or (value is None and not _may_be_none(field.type))):
            values[key] = _build(inner, value or {}, f"{path}{key}.", spelled, error, paths)
        else:
            values[key] = field.check(value, spelled=spelled, error=error)
    return cls(**values)


# ---- values


def _read(value: Any, hint: Any, field: Field, spelled: bool) -> Any:
    """The value as one of the alternatives of a type."""
    alternatives = _alternatives(hint)
    if Any in alternatives or (value is None and _may_be_none(hint)):
        return value
    mismatches: list[Mismatch] = []
    for part in alternatives:
        try:
            return _read_as(value, part, field, spelled)
        except Mismatch as mismatch:
            mismatches.append(mismatch)
    # Of a list that is none of the alternatives, the item is blamed, if it is clear which.
    clear = (
        mismatches
        if len(mismatches) == 1
        else [mismatch for mismatch in mismatches if mismatch.path or mismatch.sentence]
    )
    raise clear[0] if len(clear) == 1 else Mismatch(value, _words(hint, field))


def _read_as(value: Any, hint: Any, field: Field, spelled: bool) -> Any:
    origin = get_origin(hint) or hint
    if origin is Literal:
        return _choice(value, get_args(hint), field, spelled)
    if origin in (int, float):
        return _number(value, origin, field, spelled)
    if origin is bool:
        word = value.strip().lower() if spelled and isinstance(value, str) else None
        if not isinstance(value, bool) and word not in (*_YES, *_NO):
            raise Mismatch(value, say("schema.bool"))
        return value if isinstance(value, bool) else word in _YES
    if origin is str:
        return _text(value, field)
    if _is_list(hint):
        return _list(value, hint, field, spelled)
    if origin in (dict, Mapping) and isinstance(value, Mapping):
        if origin is Mapping and get_args(hint):
            inner = get_args(hint)[1]
            return {key: _inside(f".{key}", item, inner, field, spelled) for key, item in value.items()}
        return value
    if isinstance(origin, type) and origin not in (dict, Mapping) and isinstance(value, origin):
        return value
    raise Mismatch(value, _words(hint, field))


def _choice(value: Any, choices: tuple[Any, ...], field: Field, spelled: bool) -> Any:
    word = value.strip() if spelled and isinstance(value, str) else value
    for choice in choices:
        if type(choice) is type(word) and choice == word:
            return choice
    raise Mismatch(value, _listed(choices))


def _number(value: Any, kind: type[int] | type[float], field: Field, spelled: bool) -> int | float:
    number = value
    if spelled and isinstance(value, str) and len(value) <= LINE:
        try:
            number = float(value) if kind is float or not _is_digits(value) else int(value)
        except ValueError:
            raise Mismatch(value, _words(kind, field)) from None
    is_valid = isinstance(number, int | float) and not isinstance(number, bool) and number == number  # nan is none
    if is_valid and kind is int:
        is_valid = isinstance(number, int) or (spelled and number.is_integer())
    if not is_valid:
        raise Mismatch(value, _words(kind, field))
    if not _within(number, field):
        raise Mismatch(number, _words(kind, field))
    if abs(number) >= LARGEST:
        raise Mismatch(value, say("schema.not_so_large", number=_words(kind, field)))
    return kind(number) if spelled else number


def _is_digits(text: str) -> bool:
    return text.strip().lstrip("+-").isdecimal()


def _within(number: float, field: Field) -> bool:
    low = (field.least is None or number >= field.least) and (field.above is None or number > field.above)
    return low and (field.most is None or number <= field.most) and (field.below is None or number < field.below)


def _text(value: Any, field: Field) -> str:
    if not isinstance(value, str):
        raise Mismatch(value, _words(str, field))
    if field.longest is not None and len(value) > field.longest:
        sentence = say("schema.too_long", name=field.name, count=len(value), most=field.longest)
        raise Mismatch(value, sentence=sentence)
    if not value.isascii() and value.encode(errors="replace") != value.encode(errors="surrogatepass"):
        raise Mismatch(value, sentence=say("schema.half_character", name=field.name, value=shown(value)))
    return value


def _list(value: Any, hint: Any, field: Field, spelled: bool) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise Mismatch(value, _words(hint, field))
    if field.longest is not None and len(value) > field.longest:
        sentence = say("schema.too_many", name=field.name, count=len(value), most=field.longest)
        raise Mismatch(value, sentence=sentence)
    inner = get_args(hint) or (Any,)
    if get_origin(hint) is tuple and inner[-1] is not ...:
        if len(value) != len(inner):
            raise Mismatch(value, _words(hint, field))
    else:
        inner = (inner[0],) * len(value)
        if get_origin(hint) is Sequence and inner and inner[0] is str:  # names, which may be numbers
            value = [str(item) if type(item) is int else item for item in value]
    items = [
        _inside(f"[{n}]", item, part, field, spelled) for n, (item, part) in enumerate(zip(value, inner, strict=True))
    ]
    return tuple(items) if isinstance(value, tuple) else items


def _inside(path: str, value: Any, hint: Any, field: Field, spelled: bool) -> Any:
    try:
        return _read(value, hint, field, spelled)
    except Mismatch as wrong:
        raise Mismatch(wrong.value, wrong.expected, path + wrong.path, wrong.sentence) from None


# ---- types, and their words


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union, None left out."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(part for part in parts if part is not type(None)) or (type(None),)


def _may_be_none(hint: Any) -> bool:
    return hint is Any or hint is type(None) or type(None) in get_args(hint)


def _is_list(hint: Any) -> bool:
    return (get_origin(hint) or hint) in (list, tuple, Sequence)


def _kind(hint: Any) -> str:
    origin = get_origin(hint) or hint
    kinds = {int: "int", float: "float", bool: "bool", str: "text", Literal: "choice"}
    return "list" if _is_list(hint) else kinds.get(origin, "value")


def _words(hint: Any, field: Field) -> str:
    words = list(dict.fromkeys(_word(part, field) for part in _alternatives(hint)))
    return reduce(lambda first, second: say("errors.or", first=first, second=second), words)


def _word(hint: Any, field: Field) -> str:
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin is Literal:
        return _listed(inner)
    if origin in (int, float):
        return say("schema.int" if origin is int else "schema.float", bounds=_bounds(field))
    if _is_list(hint):
        if origin is tuple and inner and inner[-1] is not ...:
            return say("schema.list_of_parts", count=len(inner), items=[_word(part, field) for part in inner])
        return say("schema.list_of", items=_plural(inner[0], field)) if inner else say("schema.list")
    if origin in (dict, Mapping) or dataclasses.is_dataclass(origin):
        return say("schema.table")
    if origin in (str, bool, type(None)):
        return say({str: "schema.text", bool: "schema.bool"}.get(origin, "schema.null"))
    return str(getattr(origin, "__name__", origin))


def _listed(choices: Sequence[Any]) -> str:
    names = [str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in choices]
    return say("schema.one_of", choices=names) if len(names) > 1 else names[0]


def _plural(hint: Any, field: Field) -> str:
    origin = get_origin(hint) or hint
    if _is_list(hint) and get_args(hint):
        return say("schema.lists_of", items=_plural(get_args(hint)[0], field))
    if origin in (int, float):
        return say("schema.ints" if origin is int else "schema.floats", bounds=_bounds(field))
    plurals = {str: "schema.texts", dict: "schema.tables", Any: "schema.values"}
    return say(plurals[origin]) if origin in plurals else _words(hint, field)


def _bounds(field: Field) -> str:
    names = tuple(name for name in ("least", "above", "most", "below") if getattr(field, name) is not None)
    keys = {
        (): "", ("least",): "at_least", ("above",): "above", ("most",): "at_most", ("below",): "below",
        ("least", "most"): "from_to", ("least", "below"): "from_to_below", ("above", "most"): "above_to",
        ("above", "below"): "between",
    }  # fmt: skip
    return say(f"schema.{keys[names]}", **{name: _plain(getattr(field, name)) for name in names}) if names else ""


def _plain(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) or abs(number) >= 1e-4 or not number else f"{number:f}".rstrip("0")


def shown(value: Any) -> str:
    """A value in an error message, not longer than a line."""
    try:
        text = repr(value[: LINE + 1] if isinstance(value, str | bytes | list | tuple) else value)
    except (ValueError, RecursionError):  # a number of thousands of digits; a list that contains itself
        text = "a very large number" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= LINE else f"{text[: LINE - 1]}…"
