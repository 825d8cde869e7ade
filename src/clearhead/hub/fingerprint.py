"""Short names for everything that a model's answers depend on: configuration, weights, pooling; and its tokenizer."""

from __future__ import annotations

import hashlib
import json

import torch

from clearhead.hub.sentence import SentenceModules
from clearhead.models import Model
from clearhead.text import Tokenizer


def fingerprint(model: Model, tokenizer: Tokenizer | None, sentence: SentenceModules | None = None) -> str:
    digest = hashlib.blake2b(digest_size=16)
    tables = [model.state_dict()]
    digest.update(json.dumps(model.config.to_dict(), sort_keys=True, default=str).encode())
    digest.update(f"{model.task} {model.dtype} {model.quantized}".encode())
    if sentence is not None:
        tables.append(sentence.head.state_dict())
        digest.update(repr(sentence).encode())
    for table in tables:
        for name, weight in table.items():
            digest.update(name.encode())
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    if tokenizer is not None:
        vocabulary = sorted(tokenizer.get_vocab().items())
        digest.update(json.dumps([vocabulary, tokenizer.model_max_length]).encode())
    return digest.hexdigest()


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    """Of how texts become ids: two tokenizers of one fingerprint give the same ids."""
    return hashlib.blake2b(tokenizer.backend.to_str().encode(), digest_size=16).hexdigest()
