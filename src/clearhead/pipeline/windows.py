"""Long texts in windows that overlap, for jobs that look at every place of a text."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from clearhead.pipeline.batches import max_input_length
from clearhead.text import Encoding

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline

OVERLAP = 128  # tokens that two windows of a long text share, at most half of a window


def windows_of(pipe: TextPipeline, texts: list[str]) -> tuple[Encoding, int]:
    """Every text, a long one as several windows; and how many tokens two of these share."""
    reader = copy.copy(pipe.tokenizer)
    reader.truncation_side = "right"
    limit = min(max_input_length(pipe.model, reader), reader.model_max_length)
    overlap = min(OVERLAP, (limit - reader.num_special_tokens_to_add()) // 2)
    encoding = reader(
        texts,
        truncation=True,
        max_length=limit,
        stride=overlap,
        return_overflowing_tokens=True,
        return_special_tokens_mask=True,
    )
    return encoding, overlap
