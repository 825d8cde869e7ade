"""What a model answers on a text: scores with names, of words at one place or of labels.

For what changes the model inside and looks at how the answer moves: many changes run as the rows of one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.next_token import Candidate
from clearhead.explain.reading import place
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.stack_model import TokenModel
from clearhead.pipeline import Pipeline, Reading
from clearhead.text.units import display_texts, token_id

_AT_ONCE = 2**26  # numbers in flight in one forward pass, roughly: 256 MiB
_MOST_ROWS = 64


@dataclass(frozen=True)
class Scores:
    """
    kind    words at a position, a label at a position, or a label for the whole text
    of      the answer, in words
    rivals  whether the chances add up to one: not those of several labels at once, nor of a single number
    """

    pipe: Pipeline
    kind: Literal["words", "labels", "label"]
    of: str
    rivals: bool = True

    @property
    def writes(self) -> bool:
        return self.kind == "words" and isinstance(self.pipe.model, EncoderDecoderModel)

    def place(self, reading: Reading, asked: int | None) -> int | None:
        if self.kind == "label":
            if asked is not None:
                raise InputError("The whole text has one label: leave the position out.")
            return None
        tokens = reading.outputs
        if asked is not None:
            return place("position", asked, len(tokens), f"there are {len(tokens)} tokens")
        if self.of == "the next token":
            return len(tokens) - 1
        mask = self.pipe.tokenizer.mask_token_id
        masks = [n for n, token in enumerate(tokens) if token.id == mask and self.kind == "words"]
        if not masks:
            hide = (
                f"Write {self.pipe.tokenizer.mask_token} in place of a word, or say" if self.kind == "words" else "Say"
            )
            raise InputError(f"Every token has an answer of its own. {hide} which position is meant.")
        return masks[0]

    def rows(self, reading: Reading, where: int | None, count: int, fixed: dict[str, Tensor]) -> Tensor:
        """(rows, words or labels): the text so many times in one batch. fixed: what need not be computed again."""
        inputs: dict[str, Any] = {name: ids.expand(count, -1) for name, ids in reading.inputs.items()}
        if self.kind == "words":
            inputs["logits_to_keep"] = torch.tensor([where], device=self.pipe.model.device)
        logits: Tensor = self.pipe.model(**inputs, **fixed).logits
        return logits[:, 0] if self.kind == "words" else logits[:, where] if self.kind == "labels" else logits

    def names(self, ids: list[int]) -> list[str]:
        if self.kind == "words":
            return display_texts(self.pipe.tokenizer.target, ids)
        if self.pipe.model.task == "next-sentence":
            return [("the second text follows", "it does not")[id_] for id_ in ids]
        return [self.pipe.model.config.id2label[id_] for id_ in ids]

    def id_of(self, chosen: str | int, size: int) -> int:
        if self.kind == "words" or isinstance(chosen, int):
            return token_id(self.pipe.tokenizer.target, chosen, size)
        known = self.names(list(range(size)))
        if chosen not in known:
            raise InputError(
                f"There is no label {chosen!r}; there are {', '.join(known)}.{did_you_mean(chosen, known)}"
            )
        return known.index(chosen)

    def likeliest(self, scores: Tensor, top_k: int) -> list[Candidate]:
        """scores (words or labels,)"""
        chances = scores.softmax(-1) if self.rivals else scores.sigmoid()
        best = chances.topk(min(top_k, len(scores)))
        ids = best.indices.tolist()
        rows = zip(self.names(ids), ids, best.values.tolist(), scores[best.indices].tolist(), strict=True)
        return [Candidate(*row) for row in rows]


def scores_of(pipe: Pipeline) -> Scores:
    model = pipe.model
    if model.language_head is not None and model.task != "permutation-lm":
        causal = isinstance(model, EncoderDecoderModel) or (isinstance(model, TokenModel) and model.stack.causal)
        return Scores(pipe, "words", "the next token" if causal else "the hidden word")
    if model.task in ("sequence-classification", "next-sentence"):
        several = model.config.problem_type == "multi_label_classification" or model.config.num_labels == 1
        return Scores(pipe, "label", "the label", rivals=model.task == "next-sentence" or not several)
    if model.task == "token-classification":
        return Scores(pipe, "labels", "the label")
    raise InputError(
        f"{pipe.name or 'This model'} is loaded for {model.task}, which gives no chances to compare. "
        "Load it as a language model or a classifier (task=…)."
    )


def rows_at_once(time: int, width: int, heads: int) -> int:
    """How many copies of a text go through a model together."""
    return max(2, min(_MOST_ROWS, _AT_ONCE // (time * (16 * width + heads * time))))
