"""The command line: one verb per job. Heavy imports wait inside the verbs, so that --help is quick."""

from __future__ import annotations

import os
import sys

import typer

from clearhead.cli import (
    answer,
    ask,
    bench,
    classify,
    draw,
    embed,
    evaluate,
    explain,
    fill,
    generate,
    index,
    models,
    next_token,
    search,
    standard_streams,
    studio,
    study,
    summarize,
    tag,
    tokenize,
    train,
    translate,
    vectors,
    walk,
)
from clearhead.cli.style import fail
from clearhead.errors import ClearheadError

# How torch says that memory ran out, on a CPU and on a GPU.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")

app = typer.Typer(
    name="clearhead",
    help="Every transformer, small enough to read, fast enough to use, with glass walls.\n\n"
    "A MODEL is a folder, a shipped name (see [bold]clearhead models[/bold]) or a hub id such as "
    "openai-community/gpt2.",
    epilog='Start with:  clearhead walk "Once upon a time there was a king"',
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_VERBS = {
    "Use a model": {
        "generate": generate, "classify": classify, "tag": tag, "answer": answer, "ask": ask,
        "translate": translate, "summarize": summarize, "search": search, "fill": fill, "embed": embed,
        "vectors": vectors, "index": index, "draw": draw,
    },
    "Look inside": {
        "walk": walk, "explain": explain, "next": next_token, "tokenize": tokenize, "models": models, "studio": studio,
    },
    "Train and measure": {"train": train, "evaluate": evaluate, "study": study, "bench": bench},
}  # fmt: skip
for _panel, _verbs in _VERBS.items():
    for _name, _verb in _verbs.items():
        if hasattr(_verb, "app"):  # a verb with verbs of its own
            app.add_typer(_verb.app, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(_verb.command)


def _version(asked: bool) -> None:
    if asked:
        from clearhead import __version__

        typer.echo(f"clearhead {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run a verb; a user's mistake, a full disk or a lack of memory prints one clear message and no stack trace."""
    standard_streams.prepare()
    try:
        try:
            app()
        finally:
            standard_streams.finish()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        standard_streams.abandon()
        sys.exit(141)
    except (ClearheadError, OSError, MemoryError, RuntimeError) as error:
        message = _message(error)
        if message is None:
            raise
        if isinstance(error, OSError):
            standard_streams.abandon()
        sys.exit(fail(message))


def _message(error: Exception) -> str | None:
    """What there is to say to a user; None for an error that is ours."""
    if isinstance(error, ClearheadError):
        return str(error)
    if isinstance(error, MemoryError) or any(words in str(error) for words in _OUT_OF_MEMORY):
        return "There is not enough memory for this. Ask for less at once (fewer beams or texts, shorter ones)."
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        if error.filename is None:
            return f"Standard output cannot be written: {reason}."
        return f"{os.fsdecode(error.filename)} cannot be read or written: {reason}."
    return None
