"""Small tokenizers and models for the tests of pretraining objectives, and the steps they all go through."""

import functools

import numpy as np
import torch

from clearhead.text import train_tokenizer
from tests.train.objectives.small import small

SENTENCES = [
    "The robot said that it will obey the orders given it by human beings.",
    "Once upon a time there was a little girl who lived in a house near the wood with her mother.",
    "The cat sat on the mat because it was tired.",
    "Attention lets every output look directly at every input.",
    "I will read the book and you will write the letter.",
    "Nobody unbelievably misunderstood the extraordinarily complicated instructions.",
]


@functools.cache
def wordpiece():
    return train_tokenizer(SENTENCES * 3, kind="wordpiece", vocab_size=150, show_progress=False)


@functools.cache
def byte_bpe():
    return train_tokenizer(SENTENCES * 3, kind="bpe", vocab_size=400, show_progress=False)


@functools.cache
def bart_bpe():
    """Byte-level pieces with the special tokens of BART and RoBERTa."""
    tok = train_tokenizer(SENTENCES * 3, kind="bpe", vocab_size=400, show_progress=False)
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "unk_token": "<unk>"}
    tok.add_special_tokens({**names, "pad_token": "<pad>", "mask_token": "<mask>"})
    return tok


@functools.cache
def unigram(sentinels=20):
    tok = train_tokenizer(SENTENCES * 3, kind="unigram", vocab_size=150, show_progress=False)
    if sentinels:
        marks = [f"<extra_id_{n}>" for n in reversed(range(sentinels))]
        tok.add_special_tokens({"extra_special_tokens": marks})
    return tok


@functools.cache
def xlnet_unigram():
    tok = train_tokenizer(SENTENCES * 3, kind="unigram", vocab_size=150, show_progress=False)
    tok.add_special_tokens({"cls_token": "<cls>", "sep_token": "<sep>", "mask_token": "<mask>"})
    return tok


def model_of(name, tokenizer, task, configure=None, **options):
    """A small model to be trained, its config changed as the objective wants it."""
    model = small(name, task, tokenizer, **options)
    if configure is None:
        return model
    config = type(model.config).from_dict(configure(model.config.to_dict() | {"model_type": name}))
    torch.manual_seed(0)
    return model.family.make(config, task)


def rng(*seed):
    return np.random.default_rng(seed or (0,))


def documents(objective, texts=SENTENCES):
    return [example for text in texts for example in objective.encode({"text": text})]


def blocks(objective, texts=SENTENCES):
    """What data/blocks.py makes of documents: {"input_ids", "starts"}."""
    found = documents(objective, texts)
    ids = np.concatenate([example["input_ids"] for example in found])
    starts = np.cumsum([0, *(len(example["input_ids"]) for example in found)])
    size = objective.block_length
    return [
        {"input_ids": ids[at : at + size], "starts": starts[(starts >= at) & (starts < min(at + size, len(ids)))] - at}
        for at in range(0, len(ids), size)
    ]


def batch_of(objective, examples, seed=0):
    return objective.collate([objective.noise(example, rng(seed, n)) for n, example in enumerate(examples)])


def steps_lower_the_loss(objective, model, batch, steps=8, lr=3e-3):
    """A few steps on one batch; the report after them. The sum is weighed as the loop does it."""
    module = objective.training_module(model)
    module.train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=lr)
    totals = []
    for _ in range(steps):
        losses = objective.losses(module, batch)
        assert list(losses) == list(objective.loss_weights) == list(batch.counts)
        total = sum(objective.loss_weights[name] * loss for name, loss in losses.items())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(float(total.detach()))
    assert totals[-1] < totals[0]
    module.eval()
    report = objective.report(objective.measure(module, batch))
    assert next(iter(report)) == "loss"
    assert report["loss"] < totals[0]
    return report


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)
