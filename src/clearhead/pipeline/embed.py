"""One vector for a text: pooled hidden states, as Sentence-BERT folders say or as the caller asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead import hub
from clearhead.errors import InputError
from clearhead.generate.session import check_numbers
from clearhead.models.sentence import Normalize, Pooling, SentenceHead
from clearhead.pipeline.batches import TextBatch, encode_cut, run_batches, texts_of

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline


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
    rows = texts_of(texts)
    sentence = pipe.sentence or hub.SentenceModules(SentenceHead(Pooling()))
    steps = [step for step in sentence.head.steps if normalize is None or not isinstance(step, Normalize)]
    steps += [Normalize()] if normalize else []
    head = SentenceHead(sentence.head.pooling if pooling is None else Pooling((pooling,)), steps)
    prompt = sentence.default_prompt_name if prompt is None else prompt
    rows = [sentence.prompts.get(prompt, prompt) + row if prompt else row for row in rows]
    if sentence.do_lower_case:
        rows = [row.lower() for row in rows]
    stack = pipe.model.output_stack
    limits = (sentence.max_seq_length, pipe.tokenizer.model_max_length, stack.token_embedder.max_length)

    def vectors(batch: TextBatch) -> Tensor:
        found = head(stack(**batch.inputs), batch.real)
        check_numbers(found, pipe.model)
        return found

    encoded = encode_cut(pipe, rows, limit=min(limit for limit in limits if limit))
    out = torch.stack(run_batches(pipe, encoded, vectors, batch_size))
    return out[0] if isinstance(texts, str) else out
