"""Command-line options that several verbs have, said once: in a table of fields, or in a dataclass of options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields as fields_of
from typing import Annotated, Any, get_type_hints

import typer

from clearhead.messages import say
from clearhead.schema import Field

SourceLanguage = Annotated[str | None, typer.Option(help=say("options.src_lang"))]
TargetLanguage = Annotated[str | None, typer.Option(help=say("options.tgt_lang"))]
_TYPES: dict[str, Any] = {"int": int, "float": float, "bool": bool, "text": str, "choice": str}


def with_fields(fields: Mapping[str, Field], groups: Mapping[str, str]) -> Callable[[Callable[..., Any]], Any]:
    """For a command with a parameter `options`: an option for each field stands in its place, and their values in it.

    groups   the title of the panel that a group's options stand in
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        before, after = _around(list(signature.parameters.values()), "options")
        made = [_parameter(field, groups.get(field.group)) for field in fields.values()]

        @functools.wraps(command)
        def run(**values: Any) -> Any:
            options = {name: _read(field, values.pop(name)) for name, field in fields.items()}
            return command(**values, options=options)

        return _with_parameters(run, signature, [*before, *made, *after])

    return decorate


def with_group(name: str) -> Callable[[Callable[..., Any]], Any]:
    """For a command with a parameter `name` whose type is a dataclass of options: its fields stand in its place."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        group = signature.parameters[name].annotation
        hints = get_type_hints(group, include_extras=True)
        before, after = _around(list(signature.parameters.values()), name)
        made = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
            for f in fields_of(group)
        ]

        @functools.wraps(command)
        def run(**values: Any) -> Any:
            own = {parameter.name: values.pop(parameter.name) for parameter in made}
            return command(**values, **{name: group(**own)})

        return _with_parameters(run, signature, [*before, *made, *after])

    return decorate


def _with_parameters(
    run: Callable[..., Any], signature: inspect.Signature, parameters: list[inspect.Parameter]
) -> Callable[..., Any]:
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _around(parameters: list[inspect.Parameter], name: str) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    place = [parameter.name for parameter in parameters].index(name)
    return parameters[:place], parameters[place + 1 :]


def _parameter(field: Field, panel: str | None) -> inspect.Parameter:
    # Texts may be several; of several numbers, a line gives one.
    kind: Any = list[str] if field.several and field.kind == "text" else _TYPES[field.kind]
    long = f"--{field.name.replace('_', '-')}"
    flags = [] if any(flag.startswith("--") for flag in field.flags) else [long]
    flags += field.flags
    if field.kind == "bool" and field.default is None:  # yes, no, or nothing said
        flags = [f"{long}/--no-{long[2:]}"]
    metavar = field.metavar or ("true|false|" + "|".join(map(str, field.choices)) if field.kind == "choice" else None)
    option = typer.Option(*flags, help=field.help, rich_help_panel=panel, metavar=metavar)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _read(field: Field, value: Any) -> Any:
    """None where nothing was said; a word for a choice becomes the choice."""
    if value is None or value == [] or (value is False and field.default is False):
        return None
    return field.parse(value) if field.kind == "choice" else value
