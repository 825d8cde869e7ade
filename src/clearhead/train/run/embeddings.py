"""Token embeddings that begin as word vectors (`model.embeddings` in a recipe): GloVe's, or those of an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from clearhead.errors import ConfigError
from clearhead.models import Model
from clearhead.pipeline import load
from clearhead.pipeline.word_vectors import WordVectors
from clearhead.text import Tokenizer
from clearhead.text.word_vectors import matching_words


def load_embeddings(name: str | None, folder: Path) -> WordVectors | None:
    """The vectors that are named; None where none are, or where the run in `folder` has learnt from them already."""
    if name is None or any((folder / "checkpoints").glob("step-*")):
        return None
    pipe = load(name)
    if not isinstance(pipe, WordVectors):
        raise ConfigError(
            f"model.embeddings is {name}, a {pipe.model.family.title}: that is no table of word vectors. Give one: "
            "glove, a file of GloVe's or word2vec's, or the folder of a run of word-vectors."
        )
    return pipe


def check_embeddings(model: Model, vectors: WordVectors, tokenizer: Any) -> None:
    """An error where they cannot be the model's: another width, or no table of tokens that are words.

    tokenizer   None: it is still to be trained
    """
    tables = model.token_tables()
    if not tables or not all(isinstance(table, nn.Embedding) for table in tables):
        raise ConfigError(f"model.embeddings is for one table of tokens, which {model.family.title} does not have.")
    if tokenizer is not None and (not isinstance(tokenizer, Tokenizer) or tokenizer.target is not tokenizer):
        raise ConfigError("model.embeddings is for a model with one vocabulary, of words or pieces of words.")
    width = tables[0].embedding_dim
    if width != vectors.width:
        config = model.config
        name = next((name for name in ("embedding_size", "hidden_size") if getattr(config, name, None) == width), None)
        key = "the model's width" if name is None else f"model.config.{config._key(name)}"
        raise ConfigError(
            f"{vectors.title} has {vectors.width} numbers for each word, and the model's table of tokens is {width} "
            f"wide. Set {key} to {vectors.width}, or choose vectors of {width} numbers."
        )


@torch.no_grad()
def start_from(model: Model, vectors: WordVectors, tokenizer: Tokenizer) -> str:
    """Put them into the model's tables, for all tokens that are words they know; a sentence that says how many.

    Rows must not differ wildly in length. The vectors stay as they are, and the rows that keep their first values are
    brought to the vectors' mean length, all by one number. Where the table is the output matrix too, scores grow with
    it: there the vectors are brought to the mean length of the rows they replace.
    """
    check_embeddings(model, vectors, tokenizer)
    tokens, rows = matching_words(tokenizer, vectors.words)
    if not tokens:
        raise ConfigError(
            f"None of the {len(tokenizer):,} tokens is a word that {vectors.title} knows. Are they of one language?"
        )
    found = vectors.table[rows].float().cpu()  # (tokens, width)
    length = found.norm(dim=1).mean().clamp_min(1e-12)
    head = model.head.language
    output = None if head is None else getattr(head.output, "weight", None)
    for table in {id(table.weight): table for table in model.token_tables()}.values():
        drawn = table.weight[tokens].norm(dim=1).mean().cpu().clamp_min(1e-12)
        is_output = table.weight is output
        if not is_output:
            table.weight.mul_((length / drawn).to(table.weight))
        table.weight[tokens] = (found * (drawn / length if is_output else 1)).to(table.weight)
    share = len(tokens) / len(tokenizer)
    return (
        f"{len(tokens):,} of the {len(tokenizer):,} tokens ({share:.0%}) begin with their vectors from "
        f"{vectors.title}; the others are drawn."
    )
