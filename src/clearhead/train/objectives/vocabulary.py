"""New tokens: a model's embedding and head get rows for them."""

from __future__ import annotations

import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.models import Model
from clearhead.nn.linear import Linear
from clearhead.text import Tokenizer


def grow_vocabulary(model: Model, tokenizer: Tokenizer) -> None:
    """Rows for tokens that were added to the tokenizer, drawn as the first weights are; the old rows stay."""
    table = model.token_tables()[0]
    size, old = len(tokenizer), table.num_embeddings
    if size <= old:
        return
    if model.is_encoder_decoder:
        raise InputError("New tokens can be given to a model with one stack only, not to an encoder–decoder.")
    std = float(getattr(model.config, "initializer_range", 0.02))
    head = model.head.language
    with torch.no_grad():
        grown = nn.Embedding(size, table.embedding_dim, padding_idx=table.padding_idx)
        grown = grown.to(device=table.weight.device, dtype=table.weight.dtype)
        grown.weight.normal_(std=std)
        grown.weight[:old] = table.weight
        model.output_stack.token_embedder.tokens = grown
        if head is not None:
            output = head.output
            assert isinstance(output, Linear)
            wider = Linear(output.in_features, size, bias=output.bias is not None)
            wider = wider.to(device=table.weight.device, dtype=table.weight.dtype)
            wider.weight.normal_(std=std)
            wider.weight[:old] = output.weight
            if output.bias is not None:
                wider.bias.zero_()
                wider.bias[:old] = output.bias
            head.output = wider
    model.config.vocab_size = size  # type: ignore[attr-defined]
    model.tie_weights()
