"""What the verbs that write share: a text for each text, batch by batch, each row with a seed of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clearhead.cli.batch_job import BatchJob, Read
from clearhead.cli.style import out, waiting
from clearhead.cli.texts import FileArguments
from clearhead.errors import InputError

BATCH = 16  # texts that are written at once
FIRST_CHUNK = 4


def check_options(options: dict[str, Any], stored: dict[str, Any] | None = None) -> None:
    """Whether they can be asked for; with what the model's files say (`stored`), also whether each has an effect."""
    with waiting("Getting ready …"):
        from clearhead.generate import Options
    chosen = Options.from_keywords(options, stored)
    without_effect = chosen.without_effect(options) if stored is not None else []
    if without_effect:
        raise InputError(without_effect[0])


def writer(write: Callable[..., list[str]], options: dict[str, Any]) -> Callable[[list[Read], list[int]], list[Any]]:
    """From a pipeline's method to what a job calls: texts of one length together, and several answers kept together.

    Row n draws from seed + n, whichever rows are written with it, as a single call with all of them would.
    """
    answers = options.get("num_return_sequences") or 1

    def predict(read: list[Read], numbers: list[int]) -> list[Any]:
        results: dict[int, list[str]] = {}
        order = sorted(range(len(read)), key=lambda n: len(read[n][0]))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            seeds = {}
            if options.get("seed") is not None:
                seeds["seed"] = [options["seed"] + numbers[n] * answers + k for n in chosen for k in range(answers)]
            written = write([read[n][0] for n in chosen], **options | seeds)
            for place, n in enumerate(chosen):
                results[n] = written[place * answers : (place + 1) * answers]
        return [results[n] for n in range(len(read))]

    return predict


def cells(name: str) -> Callable[[list[str]], dict[str, Any]]:
    """The answer under a name; further ones under the name and their number."""
    return lambda texts: {name if n == 1 else f"{name}_{n}": text for n, text in enumerate(texts, 1)}


def full(name: str, plural: str) -> Callable[[list[str]], dict[str, Any]]:
    """The same as JSON: the first answer, and where there are several all of them."""
    return lambda texts: {name: texts[0]} | ({plural: texts} if len(texts) > 1 else {})


def show(read: Read, texts: list[str], many: bool) -> None:
    """On a terminal many answers stand under the texts they belong to; elsewhere each is a line."""
    terminal = out().is_terminal
    if many and terminal:
        out().print(read[0], style="dim", markup=False, soft_wrap=True)
    for n, text in enumerate(texts, 1):
        number = f"[{n}] " if len(texts) > 1 else ""
        print(number + (text if terminal or not many else " ".join(text.split("\n"))))
    if many and terminal:
        print()


def run(job: BatchJob, files: FileArguments, as_json: bool, name: str, plural: str) -> None:
    """name, plural: what the answer is called, and where there are several all of them."""
    job.run(files, as_json, cells(name), full(name, plural), show)
