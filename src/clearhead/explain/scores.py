"""What a model answers: scores with names, of words at one place or of labels.

For what changes the model inside and looks at how the answer moves: many changes run as the rows of one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.indices import checked_index
from clearhead.messages import Message, say
from clearhead.pipeline import Pipeline, Reading
from clearhead.text.units import display_texts, token_id

_NUMBERS_AT_ONCE = 2**26  # in flight in one forward pass, roughly: 256 MiB
_MOST_ROWS = 64


@dataclass(frozen=True)
class Candidate:
    """One possible answer: a token, or a label."""

    token: str  # as one can read it
    token_id: int
    probability: float
    logit: float  # the score before the softmax


@dataclass(frozen=True)
class AnswerScores:
    """
    kind        words at a position, a label at a position, or a label for all of the input
    answer      what is scored: "next" and "hidden" words, or a "label"
    exclusive   whether the probabilities add up to one: not those of several labels at once, nor of a single number
    """

    pipe: Pipeline
    kind: Literal["words", "labels", "label"]
    answer: Literal["next", "hidden", "label"]
    exclusive: bool = True

    @property
    def writes(self) -> bool:
        return self.kind == "words" and self.pipe.model.is_encoder_decoder

    @property
    def name(self) -> Message:
        """What is scored, in words."""
        return say(f"explain.answer_{self.answer}")

    def position(self, reading: Reading, position: int | None) -> int | None:
        """The position whose answer is looked at; None where all of the input has one."""
        if self.kind == "label":
            if position is not None:
                raise InputError(say("explain.one_label"))
            return None
        units = reading.outputs
        if position is not None:
            return checked_index("position", position, len(units), say("explain.there_are_units", count=len(units)))
        if self.answer == "next":
            return len(units) - 1
        if self.kind == "labels":
            raise InputError(say("explain.say_which_position"))
        mask = self.pipe.tokenizer.mask_token_id
        masks = [n for n, unit in enumerate(units) if getattr(unit, "id", None) == mask]
        if not masks:
            raise InputError(say("explain.mask_or_say_position", mask=self.pipe.tokenizer.mask_token))
        return masks[0]

    def rows(self, reading: Reading, position: int | None, count: int, fixed: dict[str, Tensor]) -> Tensor:
        """(rows, words or labels): the input so many times in one batch. fixed: what need not be computed again."""
        inputs: dict[str, Any] = {name: repeated(tensor, count) for name, tensor in reading.inputs.items()}
        if self.kind == "words":
            inputs["logits_to_keep"] = torch.tensor([position], device=self.pipe.model.device)
        inputs |= {name: repeated(tensor, count) for name, tensor in fixed.items()}
        logits: Tensor = self.pipe.model(**inputs).logits
        return logits[:, 0] if self.kind == "words" else logits[:, position] if self.kind == "labels" else logits

    def names(self, ids: list[int]) -> list[str]:
        if self.kind == "words":
            return display_texts(self.pipe.tokenizer.target, ids)
        if self.pipe.model.task == "next-sentence":
            return [(say("explain.second_follows"), say("explain.second_does_not"))[id_] for id_ in ids]
        return [self.pipe.model.config.id2label[id_] for id_ in ids]

    def id_of(self, chosen: str | int, size: int) -> int:
        if self.kind == "words":
            return token_id(self.pipe.tokenizer.target, chosen, size)
        known = self.names(list(range(size)))
        if isinstance(chosen, int) and not isinstance(chosen, bool) and 0 <= chosen < size:
            return chosen
        if chosen not in known:
            near = did_you_mean(str(chosen), known)
            raise InputError(say("explain.no_label", label=repr(chosen), known=known, near=near))
        return known.index(str(chosen))

    def likeliest(self, scores: Tensor, top_k: int) -> list[Candidate]:
        """scores (words or labels,)"""
        probabilities = scores.softmax(-1) if self.exclusive else scores.sigmoid()
        best = probabilities.topk(min(top_k, len(scores)))
        ids = best.indices.tolist()
        rows = zip(self.names(ids), ids, best.values.tolist(), scores[best.indices].tolist(), strict=True)
        return [Candidate(*row) for row in rows]


def answer_scores(pipe: Pipeline) -> AnswerScores:
    model = pipe.model
    if model.language_head is not None and model.task != "permutation-lm":
        return AnswerScores(pipe, "words", "next" if model.is_causal else "hidden")
    if model.task == "next-sentence":
        return AnswerScores(pipe, "label", "label")
    if model.head.answers == "label":
        several = model.config.problem_type == "multi_label_classification" or model.config.num_labels == 1
        return AnswerScores(pipe, "label", "label", exclusive=not several)
    if model.task == "token-classification":
        return AnswerScores(pipe, "labels", "label")
    raise InputError(say("explain.no_probabilities_load", task=model.task))


def repeated(tensor: Tensor, count: int) -> Tensor:
    """One row, (1, …), as so many."""
    return tensor.expand(count, *(-1,) * (tensor.ndim - 1))


def batch_size_for(time: int, width: int, heads: int) -> int:
    """How many copies of an input go through a model together."""
    return max(2, min(_MOST_ROWS, _NUMBERS_AT_ONCE // (time * (16 * width + heads * time))))
