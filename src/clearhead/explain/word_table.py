"""The vectors that words have without any context: a table of word vectors, or a text model's own embedding."""

from __future__ import annotations

from torch import nn

from clearhead.errors import InputError
from clearhead.explain.capabilities import Reason
from clearhead.messages import say
from clearhead.pipeline import Pipeline, WordVectors
from clearhead.pipeline.vector_files import pipeline_of
from clearhead.text.word_vectors import Words, token_words


def is_word_table(pipe: Pipeline) -> Reason:
    """None for word vectors."""
    return None if isinstance(pipe, WordVectors) else say("vectors.no_table", title=pipe.title)


def word_table(pipe: Pipeline) -> WordVectors:
    """The table itself, or that of a model's input, where a word is a token that is a whole word."""
    if isinstance(pipe, WordVectors):
        return pipe
    tables, tokenizer = pipe.model.token_tables(), pipe.tokenizer
    if not tables or not isinstance(tables[-1], nn.Embedding):  # Transformer-XL's is made of several
        raise InputError(say("vectors.no_table", title=pipe.title))
    table = tables[-1].weight.detach()  # what the only stack reads, or the encoder
    words = token_words(tokenizer)
    count = min(len(words), len(table))  # tables have rows that no token uses
    return pipeline_of(Words.of(words[:count]), table[:count], pipe.name)
