"""A short name for everything that a model's answers depend on: configuration, weights, tokenizer, pooling."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.pipeline import TextPipeline


def fingerprint(pipe: TextPipeline) -> str:
    import torch

    digest = hashlib.blake2b(digest_size=16)
    tables = [pipe.model.state_dict()]
    digest.update(json.dumps(pipe.model.config.to_dict(), sort_keys=True, default=str).encode())
    digest.update(f"{pipe.model.task} {pipe.model.dtype} {pipe.model.quantized}".encode())
    if pipe.sentence is not None:
        tables.append(pipe.sentence.head.state_dict())
        digest.update(repr(pipe.sentence).encode())
    for table in tables:
        for name, weight in table.items():
            digest.update(name.encode())
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    if pipe.codec is not None:
        vocabulary = sorted(pipe.tokenizer.get_vocab().items())
        digest.update(json.dumps([vocabulary, pipe.tokenizer.model_max_length]).encode())
    return digest.hexdigest()
