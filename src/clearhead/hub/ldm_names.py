"""The names of tensors in the original latent diffusion files (CompVis, Stability), and diffusers' names for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

UNET, AUTOENCODER, TEXT_1, TEXT_2 = (
    "model.diffusion_model.",
    "first_stage_model.",
    "cond_stage_model.transformer.",
    "cond_stage_model.model.",
)
_RESNET = (
    (r"\.in_layers\.0\.", ".norm1."),
    (r"\.in_layers\.2\.", ".conv1."),
    (r"\.emb_layers\.1\.", ".time_emb_proj."),
    (r"\.out_layers\.0\.", ".norm2."),
    (r"\.out_layers\.3\.", ".conv2."),
    (r"\.skip_connection\.", ".conv_shortcut."),
)
_UNET = (
    (r"^time_embed\.0\.", "time_embedding.linear_1."),
    (r"^time_embed\.2\.", "time_embedding.linear_2."),
    (r"^input_blocks\.0\.0\.", "conv_in."),
    (r"^out\.0\.", "conv_norm_out."),
    (r"^out\.2\.", "conv_out."),
    (r"^middle_block\.0\.", "mid_block.resnets.0."),
    (r"^middle_block\.1\.", "mid_block.attentions.0."),
    (r"^middle_block\.2\.", "mid_block.resnets.1."),
)
_AUTOENCODER = (
    (r"^(en|de)coder\.norm_out\.", r"\1coder.conv_norm_out."),
    (r"\.mid\.block_1\.", ".mid_block.resnets.0."),
    (r"\.mid\.block_2\.", ".mid_block.resnets.1."),
    (r"\.mid\.attn_1\.norm\.", ".mid_block.attentions.0.group_norm."),
    (r"\.mid\.attn_1\.proj_out\.", ".mid_block.attentions.0.to_out.0."),
    (r"\.mid\.attn_1\.([qkv])\.", r".mid_block.attentions.0.to_\1."),
    (r"\.down\.(\d+)\.block\.", r".down_blocks.\1.resnets."),
    (r"\.down\.(\d+)\.downsample\.", r".down_blocks.\1.downsamplers.0."),
    (r"\.nin_shortcut\.", ".conv_shortcut."),
)
_TEXT_2 = (
    (r"^token_embedding\.", "embeddings.token_embedding."),
    (r"^positional_embedding$", "embeddings.position_embedding.weight"),
    (r"^ln_final\.", "final_layer_norm."),
    (r"^transformer\.resblocks\.", "encoder.layers."),
    (r"\.ln_1\.", ".layer_norm1."),
    (r"\.ln_2\.", ".layer_norm2."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
    (r"\.attn\.out_proj\.", ".self_attn.out_proj."),
)


def _spelt(name: str, spellings: Iterable[tuple[str, str]]) -> str:
    for pattern, new in spellings:
        name = re.sub(pattern, new, name)
    return name


def unet_names(names: Iterable[str], layers: int) -> dict[str, str]:
    """The file's names of a UNet with so many layers in each block (without the prefix) -> diffusers' names."""
    renamed = {}
    for name in names:
        block = re.match(r"(input|output)_blocks\.(\d+)\.(\d+)\.(.*)", _spelt(name, _UNET))
        if block is None:
            renamed[name] = _spelt(_spelt(name, _UNET), _RESNET)
            continue
        kind, number, part, rest = block.group(1), int(block.group(2)), int(block.group(3)), block.group(4)
        side = "down" if kind == "input" else "up"
        place, layer = divmod(number - 1 if kind == "input" else number, layers + 1)
        if rest.startswith("op."):
            new = f"down_blocks.{place}.downsamplers.0.{rest.replace('op.', 'conv.')}"
        elif rest.startswith("conv."):
            new = f"up_blocks.{place}.upsamplers.0.{rest}"
        else:
            new = f"{side}_blocks.{place}.{'attentions' if part == 1 else 'resnets'}.{layer}.{rest}"
        renamed[name] = _spelt(new, _RESNET)
    return renamed


def autoencoder_names(names: Iterable[str], blocks: int) -> dict[str, str]:
    """The decoder's blocks are counted from the picture in the file, and from the latent in diffusers' folders."""
    renamed = {}
    for name in names:
        up = re.match(r"decoder\.up\.(\d+)\.(block|upsample)\.(.*)", name)
        if up is not None:
            kind = "resnets." if up.group(2) == "block" else "upsamplers.0."
            place = blocks - 1 - int(up.group(1))
            renamed[name] = _spelt(f"decoder.up_blocks.{place}.{kind}{up.group(3)}", _AUTOENCODER)
        else:
            renamed[name] = _spelt(name, _AUTOENCODER)
    return renamed


def text_names(names: Iterable[str]) -> dict[str, str]:
    """OpenCLIP's tower, of Stable Diffusion 2. Its q, k and v are one matrix, and so are told apart later."""
    return {name: _spelt(name, _TEXT_2) for name in names}


def original_names(names: Iterable[str]) -> Mapping[str, list[str]]:
    """The tensors of a file by the part they belong to (its prefix), without that prefix."""
    found: dict[str, list[str]] = {prefix: [] for prefix in (UNET, AUTOENCODER, TEXT_1, TEXT_2)}
    for name in names:
        for prefix, members in found.items():
            if name.startswith(prefix):
                members.append(name.removeprefix(prefix))
    return found
