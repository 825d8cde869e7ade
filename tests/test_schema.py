"""The one check of every reader: what a value may be, and the sentence that says so when it is something else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from clearhead.errors import ConfigError, InputError
from clearhead.schema import Field, Mismatch, build, check_names, fields_of, shown

LARGE = ", of a size below 2 to the power of 63."
COUNT = Field(name="n", type=int, default=1, least=1)
SHARE = Field(name="p", type=float | None, above=0, most=1)
WORD = Field(name="w", type=Literal["left", "right"], default="left")
TEXT = Field(name="t", type=str, default="", longest=100)
ENDS = Field(name="e", type=int | list[int] | None, expected="a token id or a list of them")
RUNS = Field(name="r", type=list[list[int]] | None)
FLAG = Field(name="b", type=bool, default=False)
PAIR = Field(name="d", type=tuple[int, float] | None)


def named(value):
    return value.name if isinstance(value, Field) else shown(value).encode("ascii", "replace").decode()


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (COUNT, 1), (COUNT, 10**12), (SHARE, 1), (SHARE, 0.5), (SHARE, None), (WORD, "right"), (TEXT, ""),
        (TEXT, "ß中🦙"), (ENDS, 3), (ENDS, [3, 4]), (ENDS, []), (ENDS, (3,)), (RUNS, [[1], [2, 3]]), (PAIR, (3, 1.5)),
        (PAIR, [3, 1]), (Field(name="x", type=Any), {1: 2}), (Field(name="b", type=bool), True),
        (Field(name="b", type=bool | Literal["never"]), "never"), (Field(name="x", type=dict[str, Any]), {"a": [1]}),
        (Field(name="f", type=float, most=0), -1e15), (Field(name="s", type=str | list[str]), ["a", "b"]),
    ],
    ids=named,
)  # fmt: skip
def test_what_may_be_stays_as_it_is(of, value):
    assert of.check(value) == value and type(of.check(value)) is type(value)


@pytest.mark.parametrize(
    ("of", "value", "says"),
    [
        (COUNT, 0, "n is 0; it must be a whole number of at least 1."),
        (COUNT, True, "n is True; it must be a whole number of at least 1."),
        (COUNT, 1.0, "n is 1.0; it must be a whole number of at least 1."),
        (COUNT, "1", "n is '1'; it must be a whole number of at least 1."),
        (COUNT, None, "n is None; it must be a whole number of at least 1."),
        (COUNT, 2**63, f"n is 9223372036854775808; it must be a whole number of at least 1{LARGE}"),
        (COUNT, 10**5000, f"n is a very large number; it must be a whole number of at least 1{LARGE}"),
        (COUNT, 1e300, "n is 1e+300; it must be a whole number of at least 1."),
        (SHARE, 0, "p is 0; it must be a number above 0 and at most 1."),
        (SHARE, 1.1, "p is 1.1; it must be a number above 0 and at most 1."),
        (SHARE, float("nan"), "p is nan; it must be a number above 0 and at most 1."),
        (SHARE, float("-inf"), "p is -inf; it must be a number above 0 and at most 1."),
        (SHARE, True, "p is True; it must be a number above 0 and at most 1."),
        (Field(name="x", type=float), 1e300, f"x is 1e+300; it must be a number{LARGE}"),
        (Field(name="x", type=float), 10**400, f"it must be a number{LARGE}"),
        (Field(name="x", type=float, least=0, below=1), 1, "x is 1; it must be a number from 0 to below 1."),
        (Field(name="x", type=float, above=0, below=1), 1, "x is 1; it must be a number above 0 and below 1."),
        (Field(name="x", type=int, least=1, most=10_000), 0, "x is 0; it must be a whole number from 1 to 10,000."),
        (Field(name="x", type=int, most=5), 6, "x is 6; it must be a whole number of at most 5."),
        (Field(name="x", type=int, below=5), 5, "x is 5; it must be a whole number below 5."),
        (Field(name="x", type=float, least=1e-6, hint="Leave it out."), 0.0,
         "x is 0.0; it must be a number of at least 0.000001. Leave it out."),
        (WORD, "lift", "w is 'lift'; it must be one of left, right. Did you mean left?"),
        (WORD, ["left"], "w is ['left']; it must be one of left, right."),
        (Field(name="c", choices=("a", 1)), True, "c is True; it must be one of a, 1."),
        (Field(name="b", type=bool), 1, "b is 1; it must be true or false."),
        (Field(name="b", type=bool), "yes", "b is 'yes'; it must be true or false."),
        (Field(name="b", type=bool | Literal["never"]), "ever", "b is 'ever'; it must be true or false or never."),
        (TEXT, 3, "t is 3; it must be a text."),
        (TEXT, "a" * 101, "t has 101 characters; 100 are the most. Shorten it."),
        (TEXT, "a\ud800", "t holds half a character (a lone surrogate), which is no text: 'a\\ud800'."),
        (ENDS, "3", "e is '3'; it must be a token id or a list of them."),
        (ENDS, [3, True], "e[1] is True; it must be a whole number."),
        (RUNS, [3], "r[0] is 3; it must be a list of whole numbers."),
        (RUNS, [[3], ["a"]], "r[1][0] is 'a'; it must be a whole number."),
        (PAIR, (3,), "d is (3,); it must be a list of 2: a whole number, a number."),
        (PAIR, {"a": 1}, "d is {'a': 1}; it must be a list of 2: a whole number, a number."),
        (Field(name="x", type=dict[str, Any]), [1], "x is [1]; it must be a table."),
        (Field(name="x", type=list[str], longest=2), ["a"] * 3, "x holds 3 values; 2 are the most."),
        (Field(name="x", type=str | list[str]), [1], "x[0] is 1; it must be a text."),
        (Field(name="x", type=list[int], least=0), [-1], "x[0] is -1; it must be a whole number of at least 0."),
        (Field(name="x", type=list[int], test=bool, expected="some numbers"), [], "x is []; it must be some numbers."),
    ],
    ids=named,
)  # fmt: skip
def test_what_may_not_be_is_said(of, value, says):
    with pytest.raises(InputError) as error:
        of.check(value)
    assert says in str(error.value)
    with pytest.raises(ConfigError, match=r"^here: "):
        of.check(value, error=lambda words: ConfigError(f"here: {words}"))


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, ["y" * 10**6], list(range(10**5)), {"k": "v" * 10**6}, b"\0" * 10**6, 10**70],
    ids=["text", "list", "numbers", "table", "bytes", "number"],
)
def test_a_huge_value_is_shortened(value):
    with pytest.raises(InputError) as error:
        COUNT.check(value)
    assert len(str(error.value)) < 160 and "…" in str(error.value)


def test_a_value_that_contains_itself_can_be_shown():
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    assert shown(value) == "a list"


@pytest.mark.parametrize(
    ("of", "value", "read"),
    [
        (COUNT, "12", 12), (COUNT, " 12 ", 12), (COUNT, 3.0, 3), (COUNT, "", 1), (COUNT, None, 1), (COUNT, "  ", 1),
        (SHARE, "1e-4", 1e-4), (SHARE, 1, 1.0), (WORD, " right ", "right"), (WORD, "", "left"), (TEXT, "  ", "  "),
        (FLAG, "Yes", True), (FLAG, "off", False), (FLAG, "", False), (FLAG, True, True),
        (Field(name="x", type=list[float]), ["1", 2], [1.0, 2.0]),
    ],
    ids=named,
)  # fmt: skip
def test_what_a_form_spells(of, value, read):
    got = of.parse(value)
    assert got == read and type(got) is type(read)


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (COUNT, "twelve"), (COUNT, "1.5"), (COUNT, "9" * 59), (COUNT, "9" * 5000), (COUNT, "nan"), (SHARE, "inf"),
        (SHARE, "1e999"), (SHARE, "2"), (WORD, "up"), (FLAG, "perhaps"), (COUNT, [1]), (COUNT, {}),
    ],
    ids=named,
)  # fmt: skip
def test_what_a_form_misspells(of, value):
    with pytest.raises(InputError, match="it must be"):
        of.parse(value)


def test_a_number_out_of_bounds_is_shown_as_a_number():
    with pytest.raises(InputError, match="n is -4; it must be a whole number of at least 1"):
        COUNT.parse("-4")


class Even(Field):
    """A field of a kind of its own."""

    def read(self, value: Any, spelled: bool) -> int:
        if value % 2:
            raise Mismatch(value, "an even number")
        return int(value)


def test_a_kind_of_its_own():
    assert Even(name="e").check(4) == 4
    with pytest.raises(InputError, match="e is 3; it must be an even number"):
        Even(name="e", type=Even).check(3)


@dataclass
class Inner:
    rate: Annotated[float, Field(help="How fast.", above=0)] = 0.1
    betas: list[float] = field(default_factory=lambda: [0.9, 0.99])


@dataclass
class Outer:
    size: Annotated[int, Field(least=1)]
    inner: Inner = field(default_factory=Inner)
    other: Inner | None = None
    names: Sequence[str] = ()
    rates: Mapping[str, float] = field(default_factory=dict)


def test_the_fields_of_a_dataclass():
    fields = fields_of(Inner)
    assert list(fields) == ["rate", "betas"]
    assert fields["rate"] == Field(name="rate", type=float, default=0.1, help="How fast.", above=0)
    assert fields["betas"].default == [0.9, 0.99]
    with pytest.raises(InputError, match="size is None"):
        fields_of(Outer)["size"].check(None)


def test_a_dataclass_from_a_table():
    table = {"size": "3", "inner": {"rate": "1e-3"}, "other": None, "names": ["a", 1], "rates": {"x": 1}}
    made = build(Outer, table, spelled=True)
    assert made == Outer(3, Inner(0.001), None, ["a", "1"], {"x": 1.0})
    assert build(Outer, {"size": 3, "inner": None}).inner == Inner()
    for wrong, says in [
        ({"size": 1, "inner": {"rate": 0}}, "inner.rate is 0; it must be a number above 0."),
        ({"size": 1, "inner": {"betas": [1, "x"]}}, r"inner.betas\[1\] is 'x'; it must be a number."),
        ({"size": 1, "rates": {"x": "y"}}, "rates.x is 'y'; it must be a number."),
        ({"size": 1, "other": {"rat": 1}}, "unknown key 'other.rat'. Did you mean rate.* There is: betas, rate."),
        ({"size": 1, "inner": 3}, "inner is 3; it must be a table."),
        ({"size": 1, 3: 3}, "unknown key '3'"),
    ]:
        with pytest.raises(ConfigError, match=says):
            build(Outer, wrong, error=ConfigError)


def test_names():
    check_names(["a"], ["a", "b"], "It has no option")
    with pytest.raises(InputError, match=r"It has no option 'colour'\. Did you mean color\?"):
        check_names(["colour"], ["color"], "It has no option")
    with pytest.raises(InputError) as error:
        check_names(["x" * 10**6], ["color"], "It has no option")
    assert len(str(error.value)) < 200


def test_what_a_form_needs_to_know():
    plain = [f.to_dict() for f in (*fields_of(Outer).values(), COUNT, SHARE, WORD, TEXT, ENDS)]
    assert json.loads(json.dumps([p for p in plain if p["name"] not in ("inner", "other")]))
    by_name = {p["name"]: p for p in plain}
    assert by_name["n"]["kind"] == "int" and by_name["n"]["least"] == 1 and by_name["n"]["default"] == 1
    assert by_name["size"]["default"] is None
    assert by_name["p"]["kind"] == "float" and not by_name["p"]["several"]
    assert by_name["w"]["kind"] == "choice" and by_name["w"]["choices"] == ["left", "right"]
    assert by_name["t"]["kind"] == "text"
    assert by_name["e"]["kind"] == "int" and by_name["e"]["several"]
    assert Field(name="x", type=bool | Literal["never"]).kind == "choice"
