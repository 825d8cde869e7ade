"""The files of the PyPI package retro-pytorch: its constructor's arguments and its tensor names, as a RETRO's.

Facts of version 0.3.9 that its arguments do not tell: there are always 8 heads, whatever `heads` says; rotary positions
turn the first 32 dimensions of a head, or all of a smaller one; between a chunk and its neighbours the query that ends
the chunk stands at twice the shift and all others at 0; the scale of residuals counts in post-norm layers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ConfigError
from clearhead.models.checkpoint import CheckpointMap, Entry, layers, linear, one

if TYPE_CHECKING:
    from clearhead.models.retro import RetroConfig

HEADS = 8
ROTATED = 32
# argument -> our option, where the value is the same
SAME = {
    "num_tokens": "vocab_size",
    "max_seq_len": "max_position_embeddings",
    "enc_dim": "encoder_hidden_size",
    "enc_depth": "encoder_layers",
    "dec_depth": "num_hidden_layers",
    "dec_dim": "hidden_size",
    "dim_head": "head_dim",
    "enc_attn_dropout": "encoder_attention_dropout",
    "enc_ff_dropout": "encoder_feedforward_dropout",
    "dec_attn_dropout": "attention_dropout",
    "dec_ff_dropout": "feedforward_dropout",
    "chunk_size": "chunk_size",
    "pad_id": "pad_token_id",
}
DEFAULTS: dict[str, Any] = {
    "num_tokens": 28996,
    "max_seq_len": 2048,
    "enc_dim": 896,
    "enc_depth": 2,
    "enc_cross_attn_layers": None,
    "dec_depth": 12,
    "dec_cross_attn_layers": (1, 3, 6, 9),
    "heads": HEADS,
    "dec_dim": 768,
    "dim_head": 64,
    "enc_attn_dropout": 0.0,
    "enc_ff_dropout": 0.0,
    "dec_attn_dropout": 0.0,
    "dec_ff_dropout": 0.0,
    "chunk_size": 64,
    "pad_id": 0,
    "enc_scale_residual": None,
    "dec_scale_residual": None,
    "norm_klass": None,
    "gated_rmsnorm": False,
    "use_deepnet": False,
}
# What every model of the package has, by our names.
FIXED: dict[str, Any] = {
    "num_attention_heads": HEADS,
    "encoder_heads": HEADS,
    "intermediate_size": None,
    "encoder_intermediate_size": None,
    "learned_positions": True,
    "decoder_positions": "rotary",
    "neighbor_positions": "rotary",
    "activation_function": "gelu",
    "fused_attention": False,
    "attention_bias": False,
    "attention_output_bias": True,
    "feedforward_bias": True,
    "output_bias": True,
    "null_key": True,
    "pad_query_positions": True,
    "encoder_projection": True,
    "share_embeddings": True,
    "embedding_dropout": 0.0,
    "hidden_dropout": 0.0,
    "tie_word_embeddings": False,
}


def read_arguments(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with the constructor's arguments, as one with our options; other keys stay as they are."""
    given = {**DEFAULTS, **{name: raw[name] for name in DEFAULTS if name in raw}}
    rest = {name: value for name, value in raw.items() if name not in DEFAULTS}
    if given["norm_klass"] is not None:
        raise ConfigError("norm_klass is a Python class, which no file can hold: leave it out.")
    for name in ("dec_depth", "enc_depth", "dim_head", "enc_dim"):
        if not isinstance(given[name], int) or isinstance(given[name], bool) or given[name] < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, not {given[name]!r}.")
    if given["dim_head"] < ROTATED:
        raise ConfigError(f"dim_head is {given['dim_head']}; retro-pytorch needs at least {ROTATED}.")
    deep, gated = bool(given["use_deepnet"]), bool(given["gated_rmsnorm"])
    depth, encoder_depth = given["dec_depth"], given["enc_depth"]
    scale, encoder_scale = given["dec_scale_residual"], given["enc_scale_residual"]
    out = {ours: given[name] for name, ours in SAME.items()}
    out |= FIXED | {
        "encoder_head_dim": given["dim_head"],
        "embedding_size": given["enc_dim"],
        "rotary_dim": ROTATED,
        "chunked_attention_layers": _layers("dec_cross_attn_layers", given, depth),
        "encoder_cross_attention_layers": _layers("enc_cross_attn_layers", given, encoder_depth),
        "norm": "gated_rms_norm" if gated else "layer_norm" if deep else "rms_norm",
        # it holds the norm itself above 1e-8, not its square
        "norm_eps": 1e-5 if deep and not gated else 1e-16,
        "norm_placement": "post" if deep else "pre",
        "residual_scale": (((3 * depth) ** 0.25 if scale is None else scale) if deep else 1.0),
        "encoder_residual_scale": (
            (0.81 * (encoder_depth**4 * depth) ** 0.0625 if encoder_scale is None else encoder_scale) if deep else 1.0
        ),
    }
    return out | rest


def _layers(name: str, given: Mapping[str, Any], depth: int) -> list[int]:
    """Layers that are not there are never met, and null means all."""
    layers_ = range(1, depth + 1) if given[name] is None else given[name]
    if isinstance(layers_, int | str) or not all(isinstance(layer, int) for layer in layers_):
        raise ConfigError(f"{name} must be a list of layers, counted from 1, not {given[name]!r}.")
    return sorted({layer for layer in layers_ if 1 <= layer <= depth})


def write_arguments(config: RetroConfig, options: Mapping[str, Any]) -> dict[str, Any]:
    """The way back."""
    ours = {*FIXED, *SAME.values(), "encoder_head_dim", "embedding_size", "rotary_dim", "chunked_attention_layers"}
    ours |= {"encoder_cross_attention_layers", "norm", "norm_eps", "norm_placement"}
    ours |= {"residual_scale", "encoder_residual_scale", "initializer_range"}
    rest = {name: value for name, value in options.items() if name not in ours or name == "chunk_size"}
    deep = config.norm_placement == "post"
    return rest | {
        **{name: getattr(config, ours) for name, ours in SAME.items()},
        "enc_cross_attn_layers": sorted(config.cross_attending_layers),
        "dec_cross_attn_layers": sorted(config.chunked_layers),
        "heads": HEADS,
        "use_deepnet": deep,
        "gated_rmsnorm": config.norm == "gated_rms_norm",
        "enc_scale_residual": config.encoder_residual_scale if deep else None,
        "dec_scale_residual": config.residual_scale if deep else None,
    }


def check(config: RetroConfig) -> None:
    """Refuse what the package has no argument for."""
    expected = FIXED | {
        "encoder_head_dim": config.head_dim,
        "embedding_size": config.encoder_hidden_size,
        "rotary_dim": ROTATED,
    }
    for name, value in expected.items():
        if getattr(config, name) != value:
            raise ConfigError(
                f'A model in the format "retro-pytorch" has {name} = {value!r}, not {getattr(config, name)!r}.'
            )


def checkpoint_map(config: RetroConfig, task: str) -> CheckpointMap:
    return CheckpointMap(
        tuple(_entries(config, task)),
        skipped=(r"(encoder|decoder)\.rotary_pos_emb\.inv_freq",),
        computed={f"{part}.rotary_pos_emb.inv_freq": _inverse_frequencies for part in ("encoder", "decoder")},
    )


def _inverse_frequencies() -> Tensor:
    return 1.0 / (10_000 ** (torch.arange(0, ROTATED, 2).float() / ROTATED))


def _entries(config: RetroConfig, task: str) -> Iterator[Entry]:
    yield one("stack.embed.tokens.weight", "token_emb.weight")
    yield one("stack.embed.positions.weight", "pos_emb.weight")
    if config.embedding_size != config.hidden_size:
        yield from linear("stack.embed.project", "to_decoder_model_dim")
    yield from layers(config.num_hidden_layers, _layer(config, "stack.layers.{n}", "decoder.layers.{n}"))
    for n in sorted(config.chunked_layers):
        ours, theirs = f"stack.layers.{n - 1}.chunked_attention", f"decoder.layers.{n - 1}.1"
        yield from _norm(config, f"{ours}_norm", f"{theirs}.norm")
        yield from _attention(ours, f"{theirs}.fn.cross_attn")
        for null in ("key", "value"):
            yield one(f"{ours}.null_{null}", f"{theirs}.fn.cross_attn.null_{null[0]}")
    yield from layers(config.encoder_layers, _layer(config, "neighbor_encoder.layers.{n}", "encoder.layers.{n}"))
    for n in sorted(config.cross_attending_layers):
        ours, theirs = f"neighbor_encoder.layers.{n - 1}.cross_attention", f"encoder.layers.{n - 1}.1"
        yield from _norm(config, f"{ours}_norm", f"{theirs}.norm")
        yield from _attention(ours, f"{theirs}.fn")
    yield from linear("neighbor_encoder.project_out", "encoder.project_out")
    if config.norm_placement == "pre":
        yield from _norm(config, "stack.final_norm", "decoder.norm_out")
        yield from _norm(config, "neighbor_encoder.final_norm", "encoder.norm_out")
    if task == "causal-lm":
        yield from linear("head.output", "to_logits", in_body=False)


def _layer(config: RetroConfig, ours: str, theirs: str) -> Iterator[Entry]:
    yield from _norm(config, f"{ours}.attention_norm", f"{theirs}.0.norm")
    yield from _attention(f"{ours}.attention", f"{theirs}.0.fn")
    yield from _norm(config, f"{ours}.feedforward_norm", f"{theirs}.2.norm")
    yield from linear(f"{ours}.feedforward.up", f"{theirs}.2.fn.ff.0")
    yield from linear(f"{ours}.feedforward.down", f"{theirs}.2.fn.ff.3")


def _attention(ours: str, theirs: str) -> Iterator[Entry]:
    for part, letter in (("query", "q"), ("key", "k"), ("value", "v")):
        yield from linear(f"{ours}.{part}", f"{theirs}.to_{letter}", bias=False)
    yield from linear(f"{ours}.output", f"{theirs}.to_out")


def _norm(config: RetroConfig, ours: str, theirs: str) -> Iterator[Entry]:
    if config.norm == "layer_norm":
        yield from linear(ours, theirs)
        return
    yield one(f"{ours}.weight", f"{theirs}.gamma")
    if config.norm == "gated_rms_norm":
        yield one(f"{ours}.gate", f"{theirs}.weight")
