"""Fill the masks in texts: the job of a masked language model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import torch

from clearhead.errors import InputError, TokenizerError
from clearhead.pipeline.batches import TextBatch, logits_at, rows_of, run_batches, texts_of
from clearhead.pipeline.windows import windows_of
from clearhead.schema import Field

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline

_TOP_K = Field(name="top_k", type=int, default=5, least=1)
Guesses = list[tuple[int, float]]  # tokens with their probabilities, best first


@dataclass(frozen=True)
class MaskFill:
    """One candidate for a masked word."""

    token: str
    token_id: int
    probability: float
    text: str  # with the candidate in place, and the other masks where they were

    @property
    def score(self) -> float:
        """The probability, by the name that the results of other jobs have for it."""
        return self.probability


@torch.no_grad()
def fill(
    pipe: TextPipeline, text: str | list[str], top_k: int = 5, batch_size: int = 32
) -> list[list[MaskFill]] | list[list[list[MaskFill]]]:
    """TextPipeline.fill."""
    _check_head(pipe)
    mask_token = pipe.tokenizer.mask_token
    if mask_token is None:
        raise TokenizerError("The tokenizer has no mask token.")
    texts, top_k = texts_of(text), _TOP_K.check(top_k)
    for n, one in enumerate(texts, start=1):
        if mask_token not in one:
            which = "the text" if len(texts) == 1 else f"text {n} of {len(texts)}"
            raise InputError(f"There is no gap in {which}. Write {mask_token} where a word is hidden.")
    whole = pipe.tokenizer(texts)["input_ids"]
    found = [
        list(_filled(pipe, ids, guesses))
        for ids, guesses in zip(whole, _guesses(pipe, texts, top_k, batch_size), strict=True)
    ]
    return found[0] if isinstance(text, str) else found


def _check_head(pipe: TextPipeline) -> None:
    head = pipe.model.language_head
    if head is None or head.shift or pipe.model.task == "permutation-lm":  # which guesses in a stream of its own
        raise InputError(
            f"{pipe.title} is loaded for {pipe.model.task}; only a masked language model fills. "
            "Choose a checkpoint that was trained as one."
        )


def _guesses(pipe: TextPipeline, texts: list[str], top_k: int, batch_size: int) -> list[list[Guesses]]:
    """Of each text the guesses for its masks, in order. In a long text, those of the window with more context."""
    encoding, _ = windows_of(pipe, texts)
    rows, samples = rows_of(pipe.model, encoding), encoding["overflow_to_sample_mapping"]
    mask_positions = [
        [position for position, token in enumerate(row["input_ids"]) if token == pipe.tokenizer.mask_token_id]
        for row in rows
    ]
    with_masks = [n for n, row in enumerate(mask_positions) if row]

    def guess(batch: TextBatch) -> list[list[Guesses]]:
        logits = logits_at(pipe, batch.inputs, [mask_positions[with_masks[number]] for number in batch.numbers])
        return [[_best(probabilities, top_k) for probabilities in row.float().softmax(-1)] for row in logits]

    guessed = dict(zip(with_masks, run_batches(pipe, [rows[n] for n in with_masks], guess, batch_size), strict=True))
    best: list[dict[int, tuple[float, Guesses]]] = [{} for _ in texts]  # where a mask begins -> (context, guesses)
    for n in with_masks:
        sample, offsets, last = samples[n], encoding.offsets(n), len(rows[n]["input_ids"]) - 1
        opens, closes = samples[:n].count(sample) == 0, samples[n + 1 :].count(sample) == 0
        for position, guesses in zip(mask_positions[n], guessed[n], strict=True):
            context = min(inf if opens else position, inf if closes else last - position)
            if context > best[sample].get(offsets[position][0], (-1.0,))[0]:
                best[sample][offsets[position][0]] = context, guesses
    return [[guesses for _, (_, guesses) in sorted(masks.items())] for masks in best]


def _best(probabilities: torch.Tensor, top_k: int) -> Guesses:
    best = probabilities.topk(min(top_k, len(probabilities)))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _filled(pipe: TextPipeline, ids: list[int], masks: list[Guesses]) -> Iterator[list[MaskFill]]:
    """The guesses as words, and as texts."""
    tokenizer = pipe.tokenizer
    left_out = set(tokenizer.all_special_ids) - {tokenizer.mask_token_id}

    def shown(ids: list[int]) -> str:
        return tokenizer.decode([token for token in ids if token not in left_out])

    mask_positions = [n for n, token in enumerate(ids) if token == tokenizer.mask_token_id]
    for position, guesses in zip(mask_positions, masks, strict=True):
        yield [
            MaskFill(
                tokenizer.readable([token])[0], token, score, shown([*ids[:position], token, *ids[position + 1 :]])
            )
            for token, score in guesses
        ]
