"""Fill the masks in a text: the job of a masked language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from clearhead.errors import InputError, TokenizerError
from clearhead.pipeline.prompts import check_text
from clearhead.schema import Field

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline


_TOP_K = Field(name="top_k", type=int, default=5, least=1)


@dataclass(frozen=True)
class MaskFill:
    """One candidate for a masked word."""

    token: str
    token_id: int
    probability: float
    text: str  # the filled text with the candidate in place


def fill(pipe: TextPipeline, text: str, top_k: int = 5) -> list[list[MaskFill]]:
    """The likeliest words for each mask in the text, best first."""
    head = pipe.model.language_head
    if head is None or head.shift or pipe.model.task == "permutation-lm":  # which guesses in a stream of its own
        raise InputError(
            f"{pipe.title} is loaded for {pipe.model.task}; only a masked language model fills. "
            "Choose a checkpoint that was trained as one."
        )
    mask_token, mask_id = pipe.tokenizer.mask_token, pipe.tokenizer.mask_token_id
    if mask_token is None:
        raise TokenizerError("The tokenizer has no mask token.")
    if mask_token not in check_text(text):
        raise InputError(f"There is no gap in the text. Write {mask_token} where a word is hidden.")
    top_k = _TOP_K.check(top_k)
    encoded = pipe.tokenizer(text, return_tensors="pt").to(pipe.model.device)
    ids = encoded["input_ids"][0]
    with torch.no_grad():
        logits = pipe.model(**encoded).logits[0].float()
    fills = []
    for position in (ids == mask_id).nonzero()[:, 0].tolist():
        best = logits[position].softmax(-1).topk(min(top_k, logits.shape[-1]))
        candidates = []
        for probability, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            filled = ids.clone()
            filled[position] = token
            shown = pipe.tokenizer.decode(filled, skip_special_tokens=True)
            candidates.append(MaskFill(pipe.tokenizer.readable([token])[0], token, probability, shown))
        fills.append(candidates)
    return fills
