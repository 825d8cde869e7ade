"""Permutation language modelling: words are guessed in a random order, each from those that came before (XLNet)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import torch
from tokenizers import processors
from torch import Tensor

from clearhead.errors import InputError
from clearhead.text import Tokenizer
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.masked import drawn_size, one_over_n, word_begins
from clearhead.train.objectives.padding import IGNORED, mask_of, padded
from clearhead.train.objectives.running_text import (
    TokenPrediction,
    around,
    check_length,
    counted,
    pad_id,
    special_table,
)


class PermutationLM(TokenPrediction):
    """One token in K is guessed: the last ones of a random order. The rest is context, which all see.

    Targets are spans of 1 to `max_span_length` tokens (n of them with p(n) ∝ 1/n), each in a context of `alpha` times
    as many; single tokens, chosen at random, fill up what is missing. Text comes first, then [SEP] and [CLS]. These two
    are never guessed, but they have a place in the order: what sees a target may only be seen by what comes after it.

    K                 how many tokens there are to one that is guessed
    max_span_length   of the targets
    alpha             the tokens of context to one of a span
    from_words        spans begin where words do; otherwise anywhere
    """

    name = "permutation-lm"
    task = "permutation-lm"
    predicted = "target"
    higher_is_better = frozenset({"target_accuracy"})
    special_tokens = {"pad_token": "<pad>", "cls_token": "<cls>", "sep_token": "<sep>"}

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        K: int = 6,
        max_span_length: int = 5,
        alpha: int = 6,
        from_words: bool = True,
    ) -> None:
        self.cls, self.sep = around(tokenizer)
        super().__init__(tokenizer, length, closing=self.sep)
        check_length(length, 4)
        for name, value in {"K": K, "max_span_length": max_span_length, "alpha": alpha}.items():
            if value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1.")
        self.K, self.alpha, self.sums = K, alpha, one_over_n(max_span_length)
        self.special, _ = special_table(tokenizer)
        self.begins = word_begins(tokenizer) if from_words else np.ones(len(self.special), dtype=bool)

    @classmethod
    def finish_tokenizer(cls, tokenizer: Tokenizer) -> None:
        """XLNet's marks come last, and padding first."""
        super().finish_tokenizer(tokenizer)
        first, last = str(tokenizer.sep_token), str(tokenizer.cls_token)
        tokenizer.backend.post_processor = processors.TemplateProcessing(
            single=f"$A:0 {first}:0 {last}:2",
            pair=f"$A:0 {first}:0 $B:1 {first}:1 {last}:2",
            special_tokens=[(token, tokenizer.backend.token_to_id(token)) for token in (first, last)],
        )
        tokenizer.padding_side = "left"

    @property
    def block_length(self) -> int:
        return self.length - 2

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        ids = np.concatenate((example["input_ids"], [self.sep, self.cls])).astype(np.int64)
        targets = self.targets(ids, rng)
        return {"input_ids": ids, "targets": targets, "order": self.order(ids, targets, rng)}

    def targets(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The positions to guess, from left to right: one in K."""
        free = ~self.special[ids]
        count_wanted = min(max(1, round(len(ids) / self.K)), int(free.sum()))
        begins = [*np.flatnonzero(self.begins[ids] & free).tolist(), len(ids)]
        chosen = np.zeros(len(ids), dtype=bool)
        position = count = 0
        while count < count_wanted:
            n = min(drawn_size(self.sums, rng.random()), count_wanted - count)
            before = int(rng.integers(n * self.alpha))  # context on the left; the rest of it is on the right
            first = begins[min(bisect_left(begins, position + before), len(begins) - 1)]
            if first + n >= len(ids):  # the text is over
                break
            chosen[first : first + n] = free[first : first + n]
            count = int(chosen.sum())
            position = first + n + n * self.alpha - before
        others = rng.permutation(np.flatnonzero(free & ~chosen))
        chosen[others[: count_wanted - count]] = True
        return np.flatnonzero(chosen)

    def order(self, ids: np.ndarray, targets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Each token's place in the order: -1 for the context, which is there from the start."""
        rank = np.full(len(ids), -1, dtype=np.int64)
        ranked = np.union1d(targets, np.flatnonzero(self.special[ids]))
        rank[ranked] = rng.permutation(len(ranked))
        return rank

    def collate(self, examples: Sequence[Example]) -> Batch:
        rows = [example["input_ids"] for example in examples]
        ids = padded(rows, pad_id(self.tokenizer))
        targets = padded([example["targets"] for example in examples], IGNORED)  # (batch, targets)
        is_target = targets != IGNORED
        positions = targets.clamp(min=0)
        labels = ids.gather(1, positions).masked_fill(~is_target, IGNORED)
        mapping = torch.zeros(*positions.shape, ids.shape[1]).scatter_(
            2, positions[..., None], is_target[..., None].float()
        )
        # [CLS] is a segment of its own
        segments = padded([np.append(np.zeros(len(row) - 1, dtype=np.int64), 2) for row in rows], 0)
        inputs = {
            "input_ids": ids,
            "order": padded([example["order"] for example in examples], -1),
            "reach": padded([_reach(example) for example in examples], 0),
            "target_mapping": mapping,
            "token_type_ids": segments,
            "labels": labels,
        }
        if len(set(map(len, rows))) > 1:
            inputs["attention_mask"] = mask_of(rows)
        return Batch(inputs, {"loss": counted(labels)}, sum(map(len, rows)))

    def model_inputs(self, batch: Batch) -> dict[str, Tensor]:
        """What the model is called with. The square mask is made here, on the device, where it is cheap."""
        inputs = dict(batch.inputs)
        order, reach = inputs.pop("order"), inputs.pop("reach")
        # Query i must not see key j if j comes later, or is i itself and a target. The context is there before all.
        return inputs | {"perm_mask": reach[:, :, None] <= order[:, None, :]}  # (batch, query, key)


def _reach(example: Example) -> np.ndarray:
    """For each token, the place in the order from which on it sees nothing: its own for a target, else the next."""
    reach = example["order"] + 1
    reach[example["targets"]] -= 1
    return reach
