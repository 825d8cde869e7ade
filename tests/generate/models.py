"""Small random models for the tests of generation, and what they say of a text when they read it afresh."""

from __future__ import annotations

import functools
import random
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead import hub
from clearhead.models import family
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.model import Model
from clearhead.nn.segment_recurrence import SegmentRecurrentStack
from tests.parity.families import FAMILIES
from tests.tiny import fields_of, tiny

VOCAB = 40
NAMES = (
    "gpt2", "openai-gpt", "ctrl", "gptj", "gpt3", "gpt_neo", "roberta", "bart", "marian", "t5", "transformer",
    "transfo-xl",
)  # fmt: skip
SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "encoder_layers": 1, "decoder_layers": 2,
    "decoder_attention_heads": 2, "intermediate_size": 64, "embedding_size": 16,
    "attention_layers": ["global", "local"], "window_size": 5, "band": 5, "cutoffs": [], "mem_len": 12, "clamp_len": -1,
}  # fmt: skip


@functools.lru_cache(maxsize=64)
def _model(name: str, seed: int, changes: tuple[tuple[str, Any], ...]) -> Model:
    task = "seq2seq-lm" if "seq2seq-lm" in family(name).architectures else "causal-lm"
    sizes = {key: value for key, value in SIZES.items() if key in fields_of(name)}
    return tiny(name, task, seed=seed, **sizes | dict(changes))


def model(name: str, seed: int = 0, **changes: Any) -> Model:
    return _model(name, seed, tuple(changes.items()))


@functools.lru_cache(maxsize=64)
def _pair(name: str, task: str, seed: int, changes: tuple[tuple[str, Any], ...]) -> tuple[Any, Model]:
    reference = FAMILIES[name]
    torch.manual_seed(seed)
    drawn = reference.draw
    reference.draw = lambda rng, task: drawn(rng, task) | dict(changes)
    try:
        config = reference.config(random.Random(f"{name} {seed}"), task)
    finally:
        reference.draw = drawn
    theirs = reference.build(config, task)
    with tempfile.TemporaryDirectory() as room:
        folder = Path(room) / "model"
        reference.save(theirs, folder)
        return theirs, hub.load_model(folder)


def pair(name: str, task: str, seed: int, **changes: Any) -> tuple[Any, Model]:
    """A model of transformers, and the same one here."""
    return _pair(name, task, seed, tuple(changes.items()))


def ids(rows: int, time: int, seed: int = 0, size: int = VOCAB) -> Tensor:
    return torch.randint(3, size, (rows, time), generator=torch.Generator().manual_seed(seed))


def padded(rows: list[list[int]], side: str = "left", pad: int = 0) -> tuple[Tensor, Tensor]:
    """Ids and mask of texts of several lengths."""
    longest = max(map(len, rows))
    fill = [[pad] * (longest - len(row)) for row in rows]
    none = [[0] * len(f) for f in fill]
    ones = [[1] * len(row) for row in rows]
    if side == "left":
        pairs = [(f + row, n + o) for f, row, n, o in zip(fill, rows, none, ones, strict=True)]
    else:
        pairs = [(row + f, o + n) for f, row, n, o in zip(fill, rows, none, ones, strict=True)]
    return torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs])


@torch.no_grad()
def afresh(model: Model, text: list[int], source: list[int] | None = None, prompt: int | None = None) -> Tensor:
    """Logits for what follows this one text, (vocab,), by reading it without a cache and without padding."""
    if isinstance(model, EncoderDecoderModel):
        assert source is not None
        return model(torch.tensor([source]), decoder_input_ids=torch.tensor([text])).logits[0, -1]
    if isinstance(model.stack, SegmentRecurrentStack):  # what it remembers depends on how much it reads at a time
        assert prompt is not None
        out = model(torch.tensor([text[:prompt]]), use_mems=True)
        for token in text[prompt:]:
            out = model(torch.tensor([[token]]), mems=out.mems, use_mems=True)
        return out.logits[0, -1]
    offset = model.stack.embed.first_position
    places = torch.arange(len(text))[None] + offset
    return model(torch.tensor([text]), position_ids=places).logits[0, -1]


def until_end(row: list[int], ends: tuple[int, ...] = (2,)) -> list[int]:
    """What was written, up to the first end token."""
    for n, token in enumerate(row):
        if token in ends:
            return row[: n + 1]
    return row
