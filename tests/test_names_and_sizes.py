"""A class name stands for one thing, and no function or class grows past what one can read in one go."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "clearhead"
LONGEST_FUNCTION = 100  # lines, its signature and docstring included
LONGEST_CLASS = 300

# What still stands to be renamed or divided. Nothing is ever added here.
TWICE = {
    "Answer", "Attention", "Step", "Piece", "Reading", "Output", "_Asked", "_Run",
    "_Found", "Similarity", "_Layer", "Entry", "Family", "Plan", "Recipe", "_Window", "Optimizer",
}  # fmt: skip
TOO_LONG = {"command", "walk", "_routes", "Tokenizer", "_Run"}

FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def definitions(kind):
    """(file, node) of every function or class, the nested ones too."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kind):
                yield str(path.relative_to(SOURCE)), node


def test_no_class_name_is_defined_twice():
    files = defaultdict(list)
    for file, node in definitions(ast.ClassDef):
        files[node.name].append(file)
    twice = {name: where for name, where in files.items() if len(where) > 1 and name not in TWICE}
    assert not twice


def too_long(kind, most):
    lengths = [(file, node.name, node.end_lineno - node.lineno + 1) for file, node in definitions(kind)]
    return [(file, name, lines) for file, name, lines in lengths if lines > most and name not in TOO_LONG]


def test_no_function_is_too_long():
    assert not too_long(FUNCTIONS, LONGEST_FUNCTION)


def test_no_class_is_too_long():
    assert not too_long(ast.ClassDef, LONGEST_CLASS)
