"""A class name stands for one thing, and no function or class grows past what one can read in one go."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "clearhead"
LONGEST_FUNCTION = 100  # lines, its signature and docstring included
LONGEST_CLASS = 300
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
    assert not {name: where for name, where in files.items() if len(where) > 1}


def longer_than(most, kind):
    lengths = [(file, node.name, node.end_lineno - node.lineno + 1) for file, node in definitions(kind)]
    return [(file, name, lines) for file, name, lines in lengths if lines > most]


def test_no_function_is_too_long():
    assert not longer_than(LONGEST_FUNCTION, FUNCTIONS)


def test_no_class_is_too_long():
    assert not longer_than(LONGEST_CLASS, ast.ClassDef)
