"""A model whose vocabulary grows: rows for new words, which begin as the mean of all that are there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.model import Model


@torch.no_grad()
def grow_vocabulary(model: Model, size: int) -> None:
    """Give the tables of a model `size` rows (fastai begins new words alike); what it knows of the others stays."""
    head = model.head.language
    output = None if head is None else head.output
    if model.is_encoder_decoder or (output is not None and not isinstance(output, nn.Linear)):
        raise InputError(f"The vocabulary of {model.family.title} cannot grow: it has more than one table of words.")
    [table] = model.token_tables()
    tied = output is not None and output.weight is table.weight
    table.weight, table.num_embeddings = _grown(table.weight, size), size
    if output is not None:
        output.weight = table.weight if tied else _grown(output.weight, size)
        output.out_features = size
        if output.bias is not None:
            output.bias = _grown(output.bias, size)
    config: Any = model.config
    config.vocab_size = size


def _grown(rows: Tensor, size: int) -> nn.Parameter:
    more = rows.mean(0, keepdim=True).expand(size - len(rows), *rows.shape[1:])
    return nn.Parameter(torch.cat([rows.detach(), more]), requires_grad=rows.requires_grad)
