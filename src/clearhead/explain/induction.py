"""Induction heads: which heads, at a token they have met before, look at what came after it then."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.inference import eval_mode
from clearhead.messages import say
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.text.units import special_ids


def induction_scores(pipe: Pipeline, length: int = 32, rows: int = 4, seed: int = 0) -> np.ndarray:
    """(layers, heads): how far each head, at a token it has met before, looks at what came after it then.

    Random tokens, `length` of them, stand twice in a row, so that nothing but repetition can be recognised. 1 is a
    perfect induction head.
    """
    model = pipe.model
    if model.is_encoder_decoder:
        raise InputError(say("explain.induction_in_one_stack"))
    most = model.max_length
    first = model.config.bos_token_id
    begin = [first] if isinstance(first, int) and 0 <= first < model.config.vocab_size else []
    length = min(length, length if most is None else (most - len(begin)) // 2)
    if length < 2 or rows < 1:
        raise InputError(say("explain.repetition_needs"))
    size = min(model.config.vocab_size, len(pipe.tokenizer))
    usual = torch.tensor([n for n in range(size) if n not in special_ids(pipe.tokenizer)])
    draw = torch.Generator().manual_seed(seed)
    texts = [usual[torch.randperm(len(usual), generator=draw)[:length]] for _ in range(rows)]
    length = len(texts[0])  # fewer, where the vocabulary is smaller
    ids = torch.stack([torch.cat((torch.tensor(begin, dtype=torch.long), half, half)) for half in texts])
    scores: dict[int, Tensor] = {}

    def keeper(layer: int) -> Any:
        def keep(weights: Tensor) -> Tensor:
            own = weights[..., weights.shape[-1] - weights.shape[-2] :].float()
            # queries of the second half, each with the key `length - 1` before it
            after = own.diagonal(1 - length, -2, -1)[..., len(begin) + 1 :]
            scores[layer] = after.mean((0, 2)).cpu()
            return weights

        return keep

    count = len(model.output_stack.layers)
    with eval_mode(model), trace(model, replace={f"layers.{n}.attention.weights": keeper(n) for n in range(count)}):
        model(input_ids=ids.to(model.device))
    return torch.stack([scores[n] for n in range(count)]).numpy()
