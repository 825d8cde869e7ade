"""The command line: one verb per job. Heavy imports wait inside the verbs, so that --help is quick."""

from __future__ import annotations

import sys

import typer

from clearhead.cli import (
    bench,
    embed,
    explain,
    fill,
    generate,
    models,
    next_token,
    studio,
    study,
    tokenize,
    train,
    walk,
)
from clearhead.errors import ClearheadError

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
app.command("generate")(generate.command)
app.command("next")(next_token.command)
app.command("fill")(fill.command)
app.command("embed")(embed.command)
app.command("explain")(explain.command)
app.command("walk")(walk.command)
app.command("tokenize")(tokenize.command)
app.command("train")(train.command)
app.command("studio")(studio.command)
app.add_typer(study.app, name="study")
app.add_typer(models.app, name="models")
app.add_typer(bench.app, name="bench")


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
    """Run a verb; a user's mistake prints one clear message and no stack trace."""
    try:
        app()
    except ClearheadError as error:
        from clearhead.cli.style import fail

        sys.exit(fail(str(error)))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        sys.stderr.close()
        sys.exit(141)
