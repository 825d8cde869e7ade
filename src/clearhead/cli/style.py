"""How the verbs speak: results to standard output, notes and errors to standard error."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from clearhead.cli.standard_streams import can_write
from clearhead.errors import CheckpointError, InputError

if TYPE_CHECKING:
    from rich.table import Table

    from clearhead.pipeline import Pipeline, TextPipeline

MODEL_HELP = "A folder, a shipped name or a hub id."
DEFAULT = "stories"  # the model that a verb takes where none is named


def out() -> Console:
    return Console(highlight=False, soft_wrap=False)


def err() -> Console:
    return Console(stderr=True, highlight=False)


def note(message: str) -> None:
    err().print(message, style="dim", markup=False)


def fail(message: str) -> int:
    with suppress(OSError):  # where standard error is full too, the exit status has to do
        err().print(Text("Error:", style="bold red"), Text(message))
    return 1


def table_of(words: dict[str, str]) -> Table:
    """Words and what they do, in two columns that wrap."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for word, meaning in words.items():
        table.add_row(Text(word), Text(meaning))
    return table


def print_json(data: Any) -> None:
    text = json.dumps(data, ensure_ascii=False, indent=2)
    sys.stdout.write((text if can_write(text) else json.dumps(data, indent=2)) + "\n")


@contextmanager
def waiting(message: str) -> Iterator[None]:
    """A spinner on a terminal, nothing elsewhere."""
    console = err()
    if console.is_terminal:
        with console.status(message):
            yield
    else:
        yield


class _NoteHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(f"Note: {record.getMessage()}")


def show_warnings() -> None:
    """What the library warns of is a note."""
    logger = logging.getLogger("clearhead")
    if not logger.handlers:
        logger.addHandler(_NoteHandler())
        logger.propagate = False


def _with_shipped(error: CheckpointError, name: str, fallback: str) -> CheckpointError:
    """The error, naming the shipped model that would do for this verb, where the one that was asked for is not here."""
    from clearhead import zoo
    from clearhead.hub import user_path

    if user_path(name).exists() or name in zoo.cards() or not fallback:
        return error
    guess = zoo.shipped_instead(zoo.stand_in(name))
    message = str(error).replace(guess, "") if guess else str(error)
    return CheckpointError(f"{message}{zoo.shipped_instead(fallback)}")


def open_pipeline(
    name: str,
    task: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    revision: str | None = None,
    quantize: str | None = None,
    fallback: str = DEFAULT,
) -> Pipeline:
    """Load a model with a spinner; say so where its weights are random.

    fallback  the shipped model that would do, to be named where this one is not here; "" where none would
    """
    show_warnings()
    with waiting(f"Loading {name} …"):
        from clearhead import zoo
        from clearhead.pipeline import load

        try:
            pipe: Pipeline = load(name, task=task, dtype=dtype, device=device, revision=revision, quantize=quantize)
        except CheckpointError as error:
            raise _with_shipped(error, name, fallback) from None
    if name in zoo.cards() and name.startswith("random-"):
        note(f"{name} is randomly initialised and has learned nothing: the mechanism is real, the answers are noise.")
    return pipe


def open_model(name: str, task: str | None = None, pictures: bool = False, **options: Any) -> TextPipeline:
    """The same, for a verb that works on texts: an error for what has nothing but vectors of words, where a verb wants
    more than vectors (task="features"), and for what reads pictures, unless the verb can show it some."""
    pipe: Any = open_pipeline(name, task, **options)
    from clearhead.pipeline import ClipPipeline, PicturePipeline, as_text

    if hasattr(pipe, "draw"):
        raise InputError(f'{name} draws pictures: clearhead draw "a red apple" -m {name}.')
    fits = pictures if isinstance(pipe, ClipPipeline | PicturePipeline) else task == "features"
    return pipe if fits else as_text(pipe)
