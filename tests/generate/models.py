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
from tests.parity.reference import shake

VOCAB = 40
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": VOCAB}
GPT = ENDS | {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 48, "tie_word_embeddings": False}
SEQ2SEQ = ENDS | {
    "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "max_position_embeddings": 48,
    "decoder_start_token_id": 2, "scale_embedding": True,
    "tie_word_embeddings": False, "forced_eos_token_id": None,
}  # fmt: skip
VALUES: dict[str, dict[str, Any]] = {
    "gpt2": GPT,
    "openai-gpt": GPT,
    "ctrl": GPT | {"dff": 20},
    "gptj": GPT | {"rotary_dim": 4},
    "gpt3": GPT | {"band": 5},
    "gpt_neo": ENDS
    | {"hidden_size": 16, "num_heads": 2, "num_layers": 2, "attention_types": [[["global", "local"], 1]],
       "window_size": 5, "max_position_embeddings": 48, "tie_word_embeddings": False},
    "roberta": ENDS
    | {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 20,
       "max_position_embeddings": 48, "is_decoder": True, "tie_word_embeddings": False},
    "bart": SEQ2SEQ,
    "marian": SEQ2SEQ,
    "t5": ENDS
    | {"d_model": 16, "d_kv": 8, "d_ff": 20, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0,
       "tie_word_embeddings": False},
    "transformer": ENDS
    | {"d_model": 16, "attention_heads": 2, "encoder_layers": 1, "decoder_layers": 2, "feedforward_size": 20,
       "max_position_embeddings": 48},
    "transfo-xl": ENDS
    | {"d_model": 16, "d_embed": 16, "n_head": 2, "d_head": 8, "d_inner": 20, "n_layer": 2, "cutoffs": [],
       "div_val": 1, "mem_len": 12, "clamp_len": -1, "same_length": False},
}  # fmt: skip


@functools.lru_cache(maxsize=64)
def _model(name: str, seed: int, changes: tuple[tuple[str, Any], ...]) -> Model:
    torch.manual_seed(seed)
    chosen = family(name)
    task = "seq2seq-lm" if "seq2seq-lm" in chosen.architectures else "causal-lm"
    made = chosen.make(chosen.config.from_dict(VALUES[name] | dict(changes)), task)
    return shake(made)  # type: ignore[return-value]


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
