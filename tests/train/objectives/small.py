"""Small tokenizers and models for the tests of task objectives, and one step of training."""

import functools

import torch

from clearhead.models import family
from clearhead.text import Tokenizer, train_tokenizer

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


def small(name: str, task: str, tokenizer: Tokenizer, **more):
    """A model of two narrow layers, without dropout."""
    vocabulary = {"vocab_size": len(tokenizer)}
    gpt = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    values = {
        "bert": {
            "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
            "max_position_embeddings": 64, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
        },
        "distilbert": {
            "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64, "dropout": 0.0,
            "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0,
        },
        "gpt2": {**gpt, "attn_pdrop": 0.0, "summary_first_dropout": 0.0},
        "transformer": {
            "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "attention_heads": 2, "feedforward_size": 32,
            "dropout": 0.0,
        },
    }  # fmt: skip
    made = family(name)
    raw = {**values.get(name, {}), **vocabulary, **more}
    return made.make(made.config.from_dict(raw), task)


def learns(objective, model, examples, steps: int = 8, lr: float = 1e-2) -> tuple[float, float]:
    """The sum of all terms before and after some steps on one batch."""
    module = objective.trained(model).train()
    batch = objective.collate(examples)
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=lr)
    seen = []
    for _ in range(steps):
        terms = objective.losses(module, batch)
        assert set(terms) == set(objective.factors) == set(batch.counts)
        total = sum(objective.factors[name] * value for name, value in terms.items())
        seen.append(float(total.detach()))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    return seen[0], seen[-1]


def encoded(objective, records):
    return [example for record in records for example in objective.encode(record)]
