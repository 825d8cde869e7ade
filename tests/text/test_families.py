"""The table of tokenizer families: what it says is complete, and no code elsewhere branches on a family's name."""

import ast
from pathlib import Path

import clearhead.text
from clearhead.text.added_tokens import NAMES
from clearhead.text.builders.families import FAMILIES, announced_family, by_name

ROOM = Path(clearhead.text.__file__).parent


def test_every_name_leads_to_one_family():
    for field in ("classes", "model_types"):
        names = [name for family in FAMILIES for name in getattr(family, field)]
        assert len(names) == len(set(names))
    for family in FAMILIES:
        assert by_name(family.name) is family
        assert (family.files is None) == (family.missing is not None)  # what cannot be rebuilt says what it lacks
        assert family.tokens.keys() <= set(NAMES)
        for name in family.classes:
            assert announced_family({"tokenizer_class": f"{name}Fast"}, {}) == (family, name)
        for name in family.model_types:
            assert announced_family({}, {"model_type": name}) == (family, name)
    assert announced_family({}, {}) == (None, None)
    assert announced_family({"tokenizer_class": "Odd"}, {"model_type": "bert"}) == (None, "Odd")


def test_no_code_branches_on_a_name():
    names = {family.name for family in FAMILIES}
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Compare):
                continue
            words = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            assert not words & names, f"{path.relative_to(ROOM)}, line {node.lineno}: {ast.unparse(node)}"
