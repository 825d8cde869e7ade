"""Stable Diffusion as one safetensors file with the original names: its parts, their sizes read off the tensors.

A file says nothing about itself but its tensors, and perhaps what its UNet predicts, in its metadata. The rest is what
Stable Diffusion 1.x (1 × 1 convolutions, 8 heads) and 2.x (matrices, heads of 64) have in common.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from clearhead.errors import CheckpointError, ConfigError
from clearhead.hub.assign import assign_weights
from clearhead.hub.diffusers_parts import make_part
from clearhead.hub.ldm_names import (
    AUTOENCODER,
    TEXT_1,
    TEXT_2,
    UNET,
    autoencoder_names,
    original_names,
    text_names,
    unet_names,
)
from clearhead.hub.weights import Weights, names_in
from clearhead.messages import say
from clearhead.models import Model, family
from clearhead.models.autoencoder_kl import Autoencoder, AutoencoderConfig
from clearhead.models.unet import UNet, UNetConfig

log = logging.getLogger("clearhead")
HEADS_1, HEAD_SIZE = 8, 64  # of Stable Diffusion 1: so many heads; of 2, and of text towers: heads of this size
BASE_2_STEPS = 875_000  # the step at which Stability's 2.x "base" models, which predict noise, were published
SCHEDULE: dict[str, Any] = {
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "skip_prk_steps": True,
    "steps_offset": 1,
}
PICKLES = (".ckpt", ".pt", ".pth", ".bin")


@dataclass(frozen=True)
class SingleFile:
    """What a file holds: three models, and the settings of a PNDM scheduler."""

    unet: UNet
    vae: Autoencoder
    text_encoder: Model
    scheduler: dict[str, Any]


def is_single_file(path: Path) -> bool:
    """Whether this is a file that could be one; a pickle is, to be refused in words."""
    return path.suffix.lower() in (".ckpt", ".safetensors") and path.is_file()


def load_single_file(path: Path, dtype: torch.dtype | None = None, device: torch.device | None = None) -> SingleFile:
    if path.suffix.lower() in PICKLES:
        raise CheckpointError(say("drawing.ckpt", path=path))
    parts = original_names(names_in(path))
    text = TEXT_2 if parts[TEXT_2] else TEXT_1
    missing = [prefix for prefix in (UNET, AUTOENCODER, text) if not parts[prefix]]
    if missing:
        raise CheckpointError(
            f"{path} holds no {', '.join(f'{prefix}*' for prefix in missing)}: it is no whole Stable Diffusion model "
            "with the original names. A folder as diffusers writes it loads by its name."
        )
    with safe_open(path, framework="pt") as file:
        metadata, has_step = file.metadata() or {}, "global_step" in file.keys()  # noqa: SIM118 (no mapping)
        step = int(file.get_tensor("global_step")) if has_step else None

        def part(prefix: str, new_names: dict[str, str]) -> dict[str, Tensor]:
            return {new: file.get_tensor(prefix + old) for old, new in new_names.items()}

        try:
            unet_config = _unet_config(lambda name: tuple(file.get_slice(UNET + name).get_shape()), parts[UNET])
            vae_config = _vae_config(
                lambda name: tuple(file.get_slice(AUTOENCODER + name).get_shape()), parts[AUTOENCODER]
            )
        except (SafetensorError, ValueError, IndexError) as error:
            reason = str(error).splitlines()[0]
            raise CheckpointError(f"{path} is not laid out as Stable Diffusion: {reason}") from None
        layers = unet_config.layers_per_block
        assert isinstance(layers, int)
        unet = part(UNET, unet_names(parts[UNET], layers))
        vae = part(AUTOENCODER, autoencoder_names(parts[AUTOENCODER], len(vae_config.block_out_channels)))
        vae = {name: t.flatten(1) if ".attentions." in name and t.ndim == 4 else t for name, t in vae.items()}
        if text == TEXT_2:
            states = _opened(part(TEXT_2, text_names(parts[TEXT_2])))
        else:
            states = part(TEXT_1, {n: n.removeprefix("text_model.") for n in parts[TEXT_1]})
    return SingleFile(
        make_part(unet_config, _in_memory(path, unet), dtype, device),  # type: ignore[arg-type]
        make_part(vae_config, _in_memory(path, vae), dtype, device),  # type: ignore[arg-type]
        _text_encoder(_in_memory(path, states), text == TEXT_2, dtype, device),
        SCHEDULE | {"prediction_type": _prediction(metadata, text == TEXT_2, step)},
    )


def _in_memory(path: Path, tensors: dict[str, Tensor]) -> Weights:
    return Weights({path: list(tensors)}, {path: tensors})


def _numbers(names: list[str], pattern: str) -> list[int]:
    """The numbers that stand at one place of the names, in order."""
    return sorted({int(match.group(1)) for name in names if (match := re.match(pattern, name))})


def _unet_config(shape: Callable[[str], tuple[int, ...]], names: list[str]) -> UNetConfig:
    last = _numbers(names, r"input_blocks\.(\d+)\.")[-1]
    steps = _numbers(names, r"input_blocks\.(\d+)\.0\.op\.")
    blocks = len(steps) + 1
    layers = steps[0] - 1 if steps else last
    firsts = [1 + n * (layers + 1) for n in range(blocks)]
    attending = _numbers(names, r"input_blocks\.(\d+)\.1\.transformer_blocks\.")
    channels = [shape(f"input_blocks.{n}.0.out_layers.3.weight")[0] for n in firsts]
    crosses = [n in attending for n in firsts]
    if not attending:
        raise ValueError("its UNet listens to no text")
    where = f"input_blocks.{attending[0]}.1"
    linear = len(shape(f"{where}.proj_in.weight")) == 2
    return UNetConfig(
        sample_size=96 if linear else 64,
        in_channels=shape("input_blocks.0.0.weight")[1],
        out_channels=shape("out.2.weight")[0],
        block_out_channels=channels,
        layers_per_block=layers,
        down_block_types=["CrossAttnDownBlock2D" if c else "DownBlock2D" for c in crosses],
        up_block_types=["CrossAttnUpBlock2D" if c else "UpBlock2D" for c in reversed(crosses)],
        transformer_layers_per_block=len(_numbers(names, rf"{re.escape(where)}\.transformer_blocks\.(\d+)\.")),
        cross_attention_dim=shape(f"{where}.transformer_blocks.0.attn2.to_k.weight")[1],
        attention_head_dim=[max(1, width // HEAD_SIZE) for width in channels] if linear else HEADS_1,
        use_linear_projection=linear,
    )


def _vae_config(shape: Callable[[str], tuple[int, ...]], names: list[str]) -> AutoencoderConfig:
    blocks = len(_numbers(names, r"encoder\.down\.(\d+)\.block\."))
    return AutoencoderConfig(
        in_channels=shape("encoder.conv_in.weight")[1],
        out_channels=shape("decoder.conv_out.weight")[0],
        down_block_types=["DownEncoderBlock2D"] * blocks,
        up_block_types=["UpDecoderBlock2D"] * blocks,
        block_out_channels=[shape(f"encoder.down.{n}.block.0.conv2.weight")[0] for n in range(blocks)],
        layers_per_block=len(_numbers(names, r"encoder\.down\.0\.block\.(\d+)\.")),
        latent_channels=shape("decoder.conv_in.weight")[1],
        use_quant_conv="quant_conv.weight" in names,
        use_post_quant_conv="post_quant_conv.weight" in names,
    )


def _opened(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """OpenCLIP's tensors with q, k and v apart, without the layer that Stable Diffusion 2 does not use: the last."""
    last = max(int(match.group(1)) for name in tensors if (match := re.match(r"encoder\.layers\.(\d+)\.", name)))
    opened: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith(f"encoder.layers.{last}.") or name in ("text_projection", "logit_scale", "attn_mask"):
            continue
        fused = re.fullmatch(r"(.*)\.attn\.in_proj_(weight|bias)", name)
        if fused is None:
            opened[name] = tensor
            continue
        for letter, each in zip("qkv", tensor.chunk(3), strict=True):
            opened[f"{fused.group(1)}.self_attn.{letter}_proj.{fused.group(2)}"] = each
    return opened


def _text_encoder(weights: Weights, second: bool, dtype: torch.dtype | None, device: torch.device | None) -> Model:
    clip = family("clip_text_model")
    try:
        words, width = weights.shape("embeddings.token_embedding.weight")
        config = clip.config.from_dict(
            {
                "vocab_size": words,
                "hidden_size": width,
                "intermediate_size": weights.shape("encoder.layers.0.mlp.fc1.weight")[0],
                "num_hidden_layers": len(_numbers(list(weights), r"encoder\.layers\.(\d+)\.")),
                "num_attention_heads": max(1, width // HEAD_SIZE),
                "max_position_embeddings": weights.shape("embeddings.position_embedding.weight")[0],
                "hidden_act": "gelu" if second else "quick_gelu",
                "projection_dim": 512 if second else 768,
            }
        )
    except (KeyError, ValueError) as error:
        raise ConfigError(f"The file's text encoder is not one of Stable Diffusion's: it lacks {error}.") from None
    model = clip.make(config, "features", device="meta")
    assign_weights(model, weights, new_head=False, dtype=dtype, device=device or torch.device("cpu"))
    return model


def _prediction(metadata: dict[str, str], second: bool, step: int | None) -> str:
    """What the UNet predicts: as the metadata say; else noise, or of a 2.x model the velocity, unless its step shows
    that it is a base model."""
    said = metadata.get("modelspec.prediction_type") or metadata.get("modelspec.predict_key")
    if said in ("epsilon", "v"):
        return "epsilon" if said == "epsilon" else "v_prediction"
    if not second:
        return "epsilon"
    kind = "epsilon" if step == BASE_2_STEPS else "v_prediction"
    log.warning(
        "The file does not say what its UNet predicts; as with most Stable Diffusion 2 files, it is taken to be %s. "
        "If pictures come out as noise, it is the other one: pipe.scheduler.config.prediction_type.",
        kind,
    )
    return kind
