"""Recipes as short YAML files, read strictly: an unknown key is an error that names the near one.

`key=value` on the command line sets a field (`optimizer.lr=1e-4`), with the value read as YAML, or as it is where the
field is a text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from clearhead.errors import ConfigError
from clearhead.schema import build, near_key, paths_of
from clearhead.train.objectives import OBJECTIVES, objective_class, options_of
from clearhead.train.recipe import Recipe, check_recipe

_MOST_VALUES = 1_000_000
_LONGEST_NAME = 80  # characters of a setting that are repeated in a message


def read_recipe(source: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()) -> Recipe:
    """A recipe from a file or a table, with `key=value` settings on top."""
    name, table = "the recipe" if isinstance(source, Mapping) else str(source), read_table(source)
    if "stages" in table:
        raise ConfigError(
            f"{name} has several stages: train_stages(read_stages(…)) runs them, as clearhead train does."
        )
    settings = list(overrides)
    for setting in settings:
        set_value(table, setting)
    if isinstance(table.get("objective"), str):
        table["objective"] = {"name": table["objective"]}
    try:
        recipe = build(Recipe, table, spelled=True, error=lambda sentence: ConfigError(f"{name}: {sentence}"))
        check_recipe(recipe, name)
    except ConfigError as error:  # what was set on top is not the file's fault
        words = str(error).removeprefix(f"{name}: ")
        keys = {setting.partition("=")[0].strip(): setting for setting in settings}
        guilty = next(
            (setting for key, setting in keys.items() if words.startswith((f"{key} ", f"{key}.", f"{key}["))), None
        )
        raise ConfigError(f"{guilty}: {words}" if guilty else str(error)) from None
    return recipe


def read_table(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe's file holds, before anybody has looked whether its keys are any."""
    if isinstance(source, Mapping):
        content, name = source, "the recipe"
    else:
        name = str(source)
        content = _parse(_text_of(Path(source)), name) or {}
    if not isinstance(content, Mapping):
        raise ConfigError(f"{name} must hold keys and values, not {type(content).__name__}.")
    return _copied(content, name)


def write_recipe(recipe: Recipe) -> str:
    """YAML that `read_recipe` gives back."""
    import yaml  # type: ignore[import-untyped, unused-ignore]

    table = asdict(recipe)
    text: str = yaml.safe_dump(table, sort_keys=False, allow_unicode=True)
    if yaml.safe_load(text) != table:  # a few rare characters do not come through as they are
        text = yaml.safe_dump(table, sort_keys=False)
    return text


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no recipe {str(path)!r}. Shipped ones: clearhead train --list.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The recipe {path} cannot be read: {error}.") from None


def _parse(text: str, name: str) -> Any:
    import yaml

    class Strict(yaml.SafeLoader):
        """YAML in which a key stands once: of two, one would be ignored in silence."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen: set[str] = set()
            for key, _ in self._own(node):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
            return super().construct_mapping(node, deep)

        @staticmethod
        def _own(node: Any) -> list[Any]:
            """The keys that are written here; the values of an anchor (<<) come in front of them."""
            plain = [pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode)]
            return [pair for pair in plain if node.start_mark.index <= pair[0].start_mark.index < node.end_mark.index]

    try:
        return yaml.load(text, Strict)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{name} is not valid YAML{where}: {getattr(error, 'problem', None) or error}.") from None
    except RecursionError:
        raise ConfigError(f"{name} is nested too deeply: hundreds of lists or tables inside each other.") from None
    except ValueError as error:  # a date such as the 99th of May
        raise ConfigError(f"{name} holds a value that cannot be read: {error}.") from None


def _copied(value: Any, where: str) -> Any:
    """A copy of its own, of what YAML can hold: nothing that an anchor or the caller shares is written to."""
    try:
        return _plain(value, where, iter(range(_MOST_VALUES)))
    except RecursionError:
        raise ConfigError(f"{where}: a value contains itself, by way of an anchor (&name, *name).") from None


def _plain(value: Any, where: str, left: Iterator[int]) -> Any:
    """left: how many values more there may be; anchors make many of a few"""
    if next(left, None) is None:
        raise ConfigError(f"{where}: there are more than {_MOST_VALUES:,} values, by way of anchors (&name, *name).")
    if isinstance(value, Mapping):
        return {_key(key): _plain(inner, f"{where}: {key}", left) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where, left) for item in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{where} is {value!r}: no name and no path holds a NUL.")
    if isinstance(value, str) and not value.isascii() and value != value.encode(errors="replace").decode():
        raise ConfigError(f"{where} is {value!r}: it holds bytes that are no UTF-8.")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ConfigError(f"{where} is {value!r} ({type(value).__name__}); a recipe holds text, numbers, lists and tables.")


def _key(key: Any) -> Any:
    """YAML 1.1 reads the words yes and no as true and false."""
    return ("yes" if key else "no") if isinstance(key, bool) else key


def set_value(table: dict[str, Any], setting: str) -> None:
    """`key=value` in a recipe's table; the key must be one."""
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{setting!r} is no setting. Write key=value, for instance optimizer.lr=1e-4.")
    *path, last = key.strip().split(".")
    kind = _type_at([*path, last], setting, table)
    for part in path:
        inner = table.get(part)
        if inner is None:
            inner = table[part] = {}
        elif isinstance(inner, str) and part == "objective":
            inner = table[part] = {"name": inner}
        elif not isinstance(inner, dict):
            raise ConfigError(f"{setting!r}: {part} is {inner!r} in the recipe, and has no keys of its own.")
        table = inner
    is_text = kind in (str, str | None) and value not in ("", "null", "~")
    table[last] = value if is_text else parse_value(value, setting)


def parse_value(text: str, name: str) -> Any:
    """What is written behind a key: YAML. `name` begins what is said of a mistake."""
    if text.startswith("*"):  # a pattern of files; to YAML it would be an alias
        return text
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    return _copied(_parse(text, name), name)


def _type_at(path: list[str], setting: str, recipe: Mapping[str, Any]) -> Any:
    """The type of the field that a path leads to; None where it leads into a free table.

    recipe   what the rest of it says, for a hint
    """
    kind: Any = Recipe
    for n, part in enumerate(path):
        table = next((option for option in (kind, *get_args(kind)) if is_dataclass(option)), None)
        if table is not None and part not in get_type_hints(table):
            raise _unknown(setting, ".".join(path[: n + 1]), get_type_hints(table), _objective_options(recipe))
        kind = get_type_hints(table)[part] if table is not None else None
    return kind


def _objective_options(recipe: Mapping[str, Any]) -> list[str]:
    """What its objective takes, where it names one that there is: "objective.window" …"""
    objective = recipe.get("objective")
    name = objective.get("name") if isinstance(objective, Mapping) else objective
    known = isinstance(name, str) and name in OBJECTIVES
    return [f"objective.{option}" for option in options_of(objective_class(str(name)))] if known else []


def _unknown(name: str, key: str, known: Iterable[str], options: list[str]) -> ConfigError:
    near = near_key(key, known, [*paths_of(Recipe), *options])
    return ConfigError(f"{name}: unknown key {key!r}.{near} There is: {', '.join(sorted(known))}.")
