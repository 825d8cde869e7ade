"""One vector for a text: pooled hidden states, as Sentence-BERT folders say or as the caller asks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead import hub
from clearhead.errors import InputError
from clearhead.models.sentence import Normalize, Pooling, SentenceHead
from clearhead.pipeline.prompts import check_text

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline

log = logging.getLogger("clearhead")


@torch.no_grad()
def embed(
    pipe: TextPipeline,
    texts: str | list[str],
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    prompt: str | None = None,
    batch_size: int = 32,
) -> Tensor:
    """TextPipeline.embed."""
    if pipe.model.is_encoder_decoder:
        raise InputError("An encoder–decoder has no single stack to embed with. Load an encoder.")
    rows = [check_text(text) for text in ([texts] if isinstance(texts, str) else texts)]
    if not rows:
        raise InputError("The list of texts is empty.")
    sentence = pipe.sentence or hub.SentenceModules(SentenceHead(Pooling()))
    steps = [step for step in sentence.head.steps if normalize is None or not isinstance(step, Normalize)]
    steps += [Normalize()] if normalize else []
    head = SentenceHead(sentence.head.pooling if pooling is None else Pooling((pooling,)), steps)
    prompt = sentence.default_prompt_name if prompt is None else prompt
    rows = [sentence.prompts.get(prompt, prompt) + row if prompt else row for row in rows]
    if sentence.do_lower_case:
        rows = [row.lower() for row in rows]
    embed = pipe.model.output_stack.token_embedder
    limit = min(v for v in (sentence.max_seq_length, pipe.tokenizer.model_max_length, embed.max_length) if v)
    padded = pipe.tokenizer.pad_token is not None
    if not padded:
        batch_size = 1  # without a padding token, one text at a time
    vectors: dict[int, Tensor] = {}
    cut = 0
    order = sorted(range(len(rows)), key=lambda n: len(rows[n]))  # texts of a length share a batch
    for start in range(0, len(rows), batch_size):
        chosen = order[start : start + batch_size]
        batch = pipe.tokenizer(
            [rows[n] for n in chosen], padding=padded, truncation=True, max_length=limit, return_tensors="pt",
            return_attention_mask=True, return_token_type_ids=embed.segments is not None,
        ).to(pipe.model.device)  # fmt: skip
        full = [n for n, mask in zip(chosen, batch["attention_mask"], strict=True) if int(mask.sum()) == limit]
        cut += sum(len(pipe.tokenizer.encode(rows[n])) > limit for n in full)
        vectors |= zip(chosen, head(pipe.model.output_stack(**batch), batch["attention_mask"]), strict=True)
    if cut:
        log.warning("%s of %s texts were cut to the %s tokens that the model can read.", cut, len(rows), limit)
    out = torch.stack([vectors[n] for n in range(len(rows))])
    return out[0] if isinstance(texts, str) else out
