"""Small random UNets, autoencoders and pipelines of diffusers, to compare with. The random numbers are of a seed."""

import logging
import random
import warnings

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import diffusers
    from diffusers.utils import logging as diffusers_logging
from transformers import CLIPTextConfig, CLIPTextModel
from transformers.utils import logging as transformers_logging

diffusers_logging.set_verbosity_error()
diffusers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()
logging.getLogger("diffusers").setLevel(logging.ERROR)

TEXT_WIDTH = 12


def close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    scale = theirs.float().abs().max().item()
    worst = (ours.float() - theirs.float()).abs().max().item()
    assert worst <= tolerance * max(scale, 1e-6), f"{worst / scale:.2e} relative"


def shuffled(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Weights that leave nothing at its first value, so that a bias or a norm in the wrong place shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def unet_options(seed: int) -> dict:
    """Every option that is honoured, in a random combination."""
    draw = random.Random(seed)
    blocks = draw.choice([2, 3])
    heads = draw.choice([2, 4])
    crosses = [draw.random() < 0.7 for _ in range(blocks)]
    crosses[0] = True
    depth = draw.choice([1, 1, 2, [draw.choice([1, 2]) for _ in range(blocks)]])
    return {
        "sample_size": 8,
        "in_channels": draw.choice([4, 9]),
        "out_channels": 4,
        "center_input_sample": draw.random() < 0.3,
        "flip_sin_to_cos": draw.random() < 0.7,
        "freq_shift": draw.choice([0, 1]),
        "down_block_types": tuple("CrossAttnDownBlock2D" if c else "DownBlock2D" for c in crosses),
        "up_block_types": tuple("CrossAttnUpBlock2D" if c else "UpBlock2D" for c in crosses[::-1]),
        "mid_block_type": draw.choice(["UNetMidBlock2DCrossAttn", "UNetMidBlock2DCrossAttn", "UNetMidBlock2D", None]),
        "block_out_channels": tuple(8 * draw.choice([1, 2, 3]) for _ in range(blocks)),
        "layers_per_block": draw.choice([1, 2, [draw.choice([1, 2]) for _ in range(blocks)]]),
        "only_cross_attention": draw.choice([False, False, True, [draw.random() < 0.5 for _ in range(blocks)]]),
        "downsample_padding": draw.choice([0, 1]),
        "mid_block_scale_factor": draw.choice([1, 1.4]),
        "act_fn": draw.choice(["silu", "mish", "gelu", "relu"]),
        "norm_num_groups": draw.choice([2, 4]),
        "norm_eps": draw.choice([1e-5, 1e-3]),
        "cross_attention_dim": TEXT_WIDTH,
        "transformer_layers_per_block": depth,
        "attention_head_dim": draw.choice([heads, [draw.choice([1, 2, 4]) for _ in range(blocks)]]),
        "use_linear_projection": draw.random() < 0.5,
        "upcast_attention": draw.random() < 0.3,
        "resnet_time_scale_shift": draw.choice(["default", "scale_shift"]),
        "time_embedding_dim": draw.choice([None, 20]),
        "time_embedding_act_fn": draw.choice([None, None, "silu"]),
        "timestep_post_act": draw.choice([None, None, "silu"]),
        "conv_in_kernel": draw.choice([3, 1, 5]),
        "conv_out_kernel": draw.choice([3, 1]),
    }


def unet(seed: int, **options) -> diffusers.UNet2DConditionModel:
    torch.manual_seed(seed)
    return shuffled(diffusers.UNet2DConditionModel(**{**unet_options(seed), **options}), seed)


def vae(seed: int, **options) -> diffusers.AutoencoderKL:
    draw = random.Random(seed)
    blocks = draw.choice([1, 2, 3])
    drawn = {
        "block_out_channels": tuple(8 * draw.choice([1, 2]) for _ in range(blocks)),
        "layers_per_block": draw.choice([1, 2]),
        "act_fn": draw.choice(["silu", "mish"]),
        "latent_channels": draw.choice([4, 3]),
        "norm_num_groups": draw.choice([2, 4]),
        "scaling_factor": draw.choice([0.18215, 0.3]),
        "use_quant_conv": draw.random() < 0.7,
        "use_post_quant_conv": draw.random() < 0.7,
        "mid_block_add_attention": draw.random() < 0.7,
    } | options
    blocks = len(drawn["block_out_channels"])
    drawn |= {"down_block_types": ("DownEncoderBlock2D",) * blocks, "up_block_types": ("UpDecoderBlock2D",) * blocks}
    torch.manual_seed(seed)
    return shuffled(diffusers.AutoencoderKL(**drawn), seed)


def text_encoder(seed: int, **options) -> CLIPTextModel:
    drawn = {
        "vocab_size": 1000,
        "hidden_size": TEXT_WIDTH,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 77,
        "eos_token_id": 2,
    } | options
    torch.manual_seed(seed)
    return shuffled(CLIPTextModel(CLIPTextConfig(**drawn)), seed)
