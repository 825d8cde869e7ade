"""clearhead explain: ask a model any of the questions, and see, save or open the answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.findings import AsCsv, AsJson, Browse, Overwrite, Save, check_target, show_finding
from clearhead.cli.style import DEFAULT, MODEL_HELP, note, open_pipeline, out, print_json, waiting
from clearhead.cli.texts import check_argument
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.explain.question import Question
    from clearhead.explain.settings import Setting
    from clearhead.pipeline import Pipeline

SECOND = {
    "pair": "It can look at two texts, if the model reads two: --second TEXT.",
    "needed": "It looks at two texts: --second TEXT.",
}


def command(
    name: Annotated[str | None, typer.Argument(metavar="QUESTION", help="What to ask; see --list.")] = None,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text to look at; - reads it from standard input.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} Default: {DEFAULT}.")] = None,
    second: Annotated[
        str | None, typer.Option(help="A second text: of a pair that is read together, or to compare with.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the text from a file.", metavar="FILE")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Say more about the question; see --show. May be given several times.",
                     metavar="NAME=VALUE"),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the questions; with --model, which ones fit.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Show what can be set, its defaults and what it means.")] = False,
    save: Save = None,
    overwrite: Overwrite = False,
    browse: Browse = False,
    labels: Annotated[
        str | None, typer.Option(help="Of a picture and a CLIP: what it chooses among, with commas between.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Which head to load; default: the checkpoint's own.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; default: as stored.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:  # fmt: skip
    """Look inside a model: who looks at whom, which words mattered, what each layer would say.

    Attention weights, attribution (saliency), activation patching, the logit
    lens (hidden-states), head ablation, neurons, beam search, KV cache …:
    one question, one text, any model. The answer is drawn in the terminal;
    --save writes it as one page that works offline, as JSON or as a table.

    Examples:

      clearhead explain --list

      clearhead explain saliency "A robot must obey" --save why.html

      clearhead explain attention "A dog runs." -m translate-en-de --open

      clearhead explain comparison "The keys to the cabinet" \\
          --set candidates="is, are"

      clearhead explain comparison --show
    """
    with waiting("Getting ready …"):
        from clearhead.explain.questions import question

    def load(where: str) -> Pipeline:
        own = where == model
        return open_pipeline(where, task if own else None, dtype, device, revision if own else None)

    if as_csv and (listing or show or name is None):
        raise InputError("--csv prints the rows of a finding. A list of questions or settings is printed with --json.")
    asked = {"TEXT": text, "--second": second, "--file": file, "--set": settings, "--save": save, "--open": browse}
    beside = [option for option, value in asked.items() if value]
    if beside and (listing or show or name is None):
        raise InputError(f"{beside[0]} is for a question that is asked. --list and --show tell what can be asked.")
    if listing or name is None:
        if name is not None:
            raise InputError(f"--list lists all questions. For one of them: clearhead explain {name} --show")
        _list(load(model) if model else None, as_json)
        return
    chosen = question(name)
    if show:
        _show(chosen, load(model) if model else None, as_json)
        return
    params = chosen.checked(_named(settings or []))
    check_target(save, overwrite, browse, as_json, as_csv)
    text = _text(chosen, text, file)
    if second is not None:
        check_argument(second, "second text")
    model = model or DEFAULT
    pipe = load(model)
    if labels is not None:
        pipe = _with_labels(pipe, labels)
    for param in chosen.params:
        if param.kind == "model" and params[param.name] is not None:
            params[param.name] = load(params[param.name])
    with waiting(f"{chosen.title}  Asking {model} …"):
        finding = chosen.ask(pipe, text, second, **params)
    show_finding(finding, as_json, as_csv, save, browse)


# ---- what is given


def _named(settings: list[str]) -> dict[str, str]:
    values = {}
    for one in settings:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set takes NAME=VALUE, such as --set layer=3, not {one!r}.")
        if not value.strip():
            raise InputError(f"--set {one} says nothing. Give a value, or leave it out for the default.")
        values[name.strip().replace("-", "_")] = value
    return values


def _text(question: Question, text: str | None, file: Path | None) -> str:
    if text is not None and file is not None:
        raise InputError("Give the text or --file, not both.")
    if file is not None:
        try:
            return file.expanduser().read_text(encoding="utf-8-sig").strip("\n")
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror or error}.") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is no text in UTF-8 (byte {error.start}). Save it as UTF-8.") from error
    if text == "-":
        return sys.stdin.read().strip("\n")
    if text is None and question.text:
        raise InputError(
            f'There is no text. Give it in quotes: clearhead explain {question.name} "A robot must obey" '
            "(or - for standard input, or --file)."
        )
    return text or ""


# ---- what can be asked


def _list(pipe: Pipeline | None, as_json: bool) -> None:
    from rich.text import Text

    from clearhead.explain.questions import QUESTIONS

    reasons = {name: None if pipe is None else question.fits(pipe) for name, question in QUESTIONS.items()}
    if as_json:
        rows = [
            question.to_dict() | ({} if pipe is None else {"unfit": reasons[name]})
            for name, question in QUESTIONS.items()
        ]
        print_json(rows)
        return
    console, longest = out(), max(map(len, QUESTIONS))
    group = ""
    for name, question in QUESTIONS.items():
        if question.group != group:
            console.print(Text(("\n" if group else "") + question.group_title, style="bold"))
            group = question.group
        if (reason := reasons[name]) is not None:
            console.print(Text(f"  {name:{longest}}  – {reason}", style="dim"))
            continue
        line = Text.assemble((f"  {name:{longest}}  ", "cyan"), question.title, "  ", (question.help, "dim"))
        console.print(line, no_wrap=True, overflow="ellipsis")
    note('\nAsk:      clearhead explain saliency "A robot must obey"\nSet more: clearhead explain saliency --show')


def _show(question: Question, pipe: Pipeline | None, as_json: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    if as_json:
        print_json(question.to_dict())
        return
    console = out()
    console.print(Text.assemble((question.name, "bold"), "  ", question.title))
    console.print(Text(question.help))
    if question.second:
        console.print(Text(SECOND[question.second]))
    reason = None if pipe is None else question.fits(pipe)
    if reason is not None:
        console.print(Text(f"Not this model: {reason}", style="red"))
    params = question.params if pipe is None else question.params_for(pipe)
    if not params:
        console.print(Text("There is nothing to set.", style="dim"))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in ("--set", "default", "what it means"):
        table.add_column(column)
    for param in params:
        table.add_row(Text(param.name, style="cyan"), Text(_default(param)), Text(f"{param.help}{_possible(param)}"))
    console.print(table)


def _default(param: Setting) -> str:
    plain: dict[Any, str] = {None: "–", True: "yes", False: "no"}
    if isinstance(param.default, list):
        return ", ".join(map(str, param.default))
    return plain[param.default] if param.default is None or isinstance(param.default, bool) else str(param.default)


def _possible(param: Setting) -> str:
    """What a value can be, as the end of a sentence in brackets."""
    words = (
        ", ".join(param.choices)
        or param.bounds.strip()
        or {"bool": "yes or no", "model": "a model"}.get(param.kind, "")
    )
    only = " For encoder–decoders." if param.encoder_decoder_only else ""
    return f"{only} ({words})" if words else only


def _with_labels(pipe: Pipeline, labels: str) -> Pipeline:
    from clearhead.messages import say
    from clearhead.pipeline import ClipPipeline

    if not isinstance(pipe, ClipPipeline):
        raise InputError(say("explain.compares_no_pictures", title=pipe.title))
    return pipe.with_labels([label.strip() for label in labels.split(",") if label.strip()])
