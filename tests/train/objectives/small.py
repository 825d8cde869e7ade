"""Small tokenizers and models for the tests of task objectives, and one step of training."""

import functools

import torch

from clearhead.models import family
from clearhead.text import Tokenizer, train_tokenizer
from tests.tiny import fields_of, tiny

SENTENCES = [
    "the cat sat on the mat .",
    "a dog ran away from angela merkel in berlin .",
    "the red house is old and the green one is new .",
    "who wrote the book about the sea ?",
] * 3


@functools.cache
def _wordpiece() -> Tokenizer:
    return train_tokenizer(SENTENCES, kind="wordpiece", vocab_size=140, min_frequency=1, show_progress=False)


@functools.cache
def _bpe() -> Tokenizer:
    return train_tokenizer(SENTENCES, kind="bpe", vocab_size=330, min_frequency=1, show_progress=False)


def wordpiece() -> Tokenizer:
    """BERT's kind: [CLS] … [SEP], pads with [PAD]."""
    return _wordpiece()


def bpe() -> Tokenizer:
    """GPT-2's kind, with <|endoftext|> only; a copy of one's own, for objectives that add tokens."""
    import copy

    return copy.deepcopy(_bpe())


SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "encoder_layers": 1, "decoder_layers": 2,
    "decoder_attention_heads": 2, "intermediate_size": 32, "feedforward_size": 32, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32, "embedding_size": 8, "max_position_embeddings": 64,
}  # fmt: skip


def small(name: str, task: str, tokenizer: Tokenizer, **more):
    """A model to be trained on this tokenizer's tokens: its weights as the family draws them, without dropout."""
    tied = family(name).config.tie_word_embeddings
    options = {"vocab_size": len(tokenizer), "tie_word_embeddings": tied} | SIZES
    options = {key: value for key, value in options.items() if key in fields_of(name)} | more
    return tiny(name, task, shaken=False, dropout=False, **options)


def learns(objective, model, examples, steps: int = 8, lr: float = 1e-2) -> tuple[float, float]:
    """The sum of all terms before and after some steps on one batch."""
    module = objective.training_module(model).train()
    batch = objective.collate(examples)
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=lr)
    seen = []
    for _ in range(steps):
        terms = objective.losses(module, batch)
        assert set(terms) == set(objective.loss_weights) == set(batch.counts)
        total = sum(objective.loss_weights[name] * value for name, value in terms.items())
        seen.append(float(total.detach()))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return seen[0], seen[-1]


def encoded(objective, records):
    return [example for record in records for example in objective.encode(record)]
