"""Many texts through a model: encoded once, run with others of their length, and given back in the caller's order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.session import check_numbers
from clearhead.models import Model
from clearhead.nn.fast import cpu_kernels
from clearhead.schema import Field
from clearhead.text import Encoding, Tokenizer

if TYPE_CHECKING:
    from clearhead.pipeline.base import Pipeline
    from clearhead.pipeline.text import TextPipeline

log = logging.getLogger("clearhead")

Row = dict[str, list[int]]  # input_ids, and token_type_ids where the model reads segments
CPU_TOKENS = 1024  # in a batch on the CPU: more would leave its caches
_BATCH_SIZE = Field(name="batch_size", type=int, default=32, least=1)


@dataclass(frozen=True)
class TextBatch:
    """Rows of similar length, filled up to one: on the right, unless the head reads the last position of all.

    inputs    what the model is called with; no mask where nothing is hidden
    real      (batch, time): 1 where there is a token of the text, 0 for padding
    numbers   which rows of the caller's these are
    """

    inputs: dict[str, Tensor]
    real: Tensor
    numbers: list[int]


def texts_of(texts: str | Sequence[str]) -> list[str]:
    """One text or several, as a list of texts that say something."""
    rows = [texts] if isinstance(texts, str) else texts
    if not isinstance(rows, list | tuple):
        raise InputError(f"The text must be a string or a list of strings, not {type(texts).__name__}.")
    if not rows:
        raise InputError("The list of texts is empty.")
    for n, row in enumerate(rows):
        which = "The text" if len(rows) == 1 else f"Text {n + 1} of {len(rows)}"
        if not isinstance(row, str):
            raise InputError(f"{which} must be a string, not {type(row).__name__}.")
        if not row.strip():
            raise InputError(f"{which} is empty. Give at least one word.")
    return list(rows)


def pairs_of(texts: str | Sequence[str], pair: str | Sequence[str] | None) -> list[str] | None:
    """The second texts, one for each first; None where there are none."""
    if pair is None:
        return None
    if isinstance(texts, str) != isinstance(pair, str):
        raise InputError("A text has a text as its pair, and a list of texts has a list of as many.")
    first, second = texts_of(texts), texts_of(pair)
    if len(first) != len(second):
        raise InputError(f"There are {len(first)} texts but {len(second)} second texts; each needs its own.")
    return second


def max_input_length(model: Model, tokenizer: Tokenizer) -> int:
    """How many tokens of a text the model can read; the tokenizer's word counts where the model has no limit."""
    stacks = model.stacks.values() if getattr(model, "target_is_source", False) else list(model.stacks.values())[:1]
    limits = [stack.embed.max_length for stack in stacks if stack.embed.max_length is not None]
    return min(limits, default=tokenizer.model_max_length)


def rows_of(model: Model, encoding: Encoding) -> list[Row]:
    """The rows of an encoded list of texts, as the model takes them: without segments where it has none."""
    names = ["input_ids", *(["token_type_ids"] if model.reads_segments and "token_type_ids" in encoding else [])]
    return [dict(zip(names, row, strict=True)) for row in zip(*(encoding[name] for name in names), strict=True)]


def encode_cut(
    pipe: Pipeline, texts: list[str], pairs: list[str] | None = None, limit: int = 0, truncation: str | bool = True
) -> list[Row]:
    """Each text (or pair) as a row. One that is too long is cut, and a warning says how many were.

    limit        how many tokens; by default as many as the model can read
    truncation   where to cut, as the tokenizer's option says it
    """
    limit = limit or max_input_length(pipe.model, pipe.tokenizer)
    rows = rows_of(pipe.model, pipe.tokenizer(texts, pairs))
    long = [n for n, row in enumerate(rows) if len(row["input_ids"]) > limit]
    if long:
        again = pipe.tokenizer(
            [texts[n] for n in long], pairs and [pairs[n] for n in long], truncation=truncation, max_length=limit
        )
        for n, row in zip(long, rows_of(pipe.model, again), strict=True):
            rows[n] = row
        log.warning("%s of %s texts were cut to the %s tokens that the model can read.", len(long), len(rows), limit)
    return rows


def run_batches(pipe: Pipeline, rows: Sequence[Row], run: Callable[[TextBatch], Any], batch_size: int) -> list[Any]:
    """`run` over all rows, those of similar length together; one result for each row, in the order of the rows.

    run   a batch -> a sequence with a result for each of its rows
    """
    batch_size = _BATCH_SIZE.check(batch_size)
    on_cpu = pipe.model.device.type == "cpu"
    if on_cpu and len(rows) >= batch_size:
        cpu_kernels.load()  # with them, products of many rows are quicker too
    apart = _kept_apart(pipe.model)
    groups: dict[Hashable, list[int]] = {}
    for n, row in enumerate(rows):
        groups.setdefault(apart(row["input_ids"], n), []).append(n)
    results: dict[int, Any] = {}
    for group in groups.values():
        for chosen in _of_similar_length(rows, group, batch_size, CPU_TOKENS if on_cpu else None):
            results |= zip(chosen, run(_padded(pipe, rows, chosen)), strict=True)
    return [results[n] for n in range(len(rows))]


def checked_logits(pipe: TextPipeline, batch: TextBatch) -> Tensor:
    """What the model's head says of a batch, in fp32 on the CPU; an error where it is NaN."""
    logits = pipe.model(**batch.inputs).logits
    check_numbers(logits, pipe.model)
    return logits.float().cpu()


def logits_at(pipe: TextPipeline, inputs: dict[str, Tensor], positions: list[list[int]]) -> list[Tensor]:
    """Of each row the logits at its positions, (positions, vocabulary). At others none are computed."""
    kept = sorted({position for row in positions for position in row})
    logits = pipe.model(**inputs, logits_to_keep=torch.tensor(kept, device=pipe.model.device)).logits
    check_numbers(logits, pipe.model)
    column = {position: n for n, position in enumerate(kept)}
    return [logits[n, [column[position] for position in row]] for n, row in enumerate(positions)]


def _of_similar_length(
    rows: Sequence[Row], numbers: list[int], batch_size: int, tokens: int | None
) -> Iterator[list[int]]:
    """Batches of at most so many rows, and of at most so many tokens if they are more than one row."""
    batch: list[int] = []
    for n in sorted(numbers, key=lambda n: len(rows[n]["input_ids"])):
        full = tokens is not None and (len(batch) + 1) * len(rows[n]["input_ids"]) > tokens
        if batch and (full or len(batch) == batch_size):
            yield batch
            batch = []
        batch.append(n)
    if batch:
        yield batch


def _padded(pipe: Pipeline, rows: Sequence[Row], numbers: list[int]) -> TextBatch:
    model, tokenizer = pipe.model, pipe.tokenizer
    chosen = [rows[n] for n in numbers]
    longest = max(len(row["input_ids"]) for row in chosen)
    pad = getattr(model.config, "pad_token_id", None)
    fill = {"input_ids": (tokenizer.pad_token_id or 0) if pad is None else pad}
    fill["token_type_ids"] = tokenizer.pad_token_type_id
    left = _summary_token(model) == "final"

    def filled(row: list[int], value: int) -> list[int]:
        padding = [value] * (longest - len(row))
        return padding + row if left else row + padding

    inputs = {name: torch.tensor([filled(row[name], fill[name]) for row in chosen]) for name in chosen[0]}
    real = torch.tensor([filled([1] * len(row["input_ids"]), 0) for row in chosen])
    if not bool(real.all()):  # attention is quicker without a mask that hides nothing
        inputs["attention_mask"] = real
    return TextBatch({name: t.to(model.device) for name, t in inputs.items()}, real.to(model.device), numbers)


def _summary_token(model: Model) -> str | None:
    """Which token speaks for a text (`Summary.token`); None where every token answers for itself."""
    return getattr(getattr(model.head, "pooler", None), "token", None)


def _kept_apart(model: Model) -> Callable[[list[int], int], Hashable]:
    """(ids, number of the row) -> rows of different values must not share a batch: padding would change an answer."""
    token = _summary_token(model)
    config: Any = model.config
    if token == "mean":  # over all positions
        return lambda ids, n: len(ids)
    if token == "last" and config.pad_token_id is None:  # nothing says where a padded text ends
        return lambda ids, n: n
    if token == "end":  # the head wants as many end tokens in each text
        return lambda ids, n: ids.count(config.eos_token_id)
    first = next(iter(model.stacks.values())).layers[0]
    block = getattr(getattr(first, "attention", None), "block_size", None)
    if block is not None:  # the last block is seen by all, so it must not be one of padding
        return lambda ids, n: -(-len(ids) // block)
    return lambda ids, n: 0
