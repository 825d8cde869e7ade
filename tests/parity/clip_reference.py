"""Small random CLIPs of transformers, and inputs for them."""

import random
from typing import Any

import torch
import transformers

from tests.tiny import shake

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

CLASSES = {
    "clip features": transformers.CLIPModel,
    "clip image-classification": transformers.CLIPForImageClassification,
    "clip_vision_model features": transformers.CLIPVisionModel,
    "clip_vision_model projection": transformers.CLIPVisionModelWithProjection,
}


def drawn(seed: int, **values: Any) -> transformers.CLIPConfig:
    """Odd seeds have the rule of old files: the end token is the largest id, whatever eos_token_id says."""
    rng = random.Random(seed)

    def tower() -> dict[str, Any]:
        heads = rng.choice([1, 2, 4])
        return {
            "hidden_size": heads * rng.choice([4, 8]),
            "num_attention_heads": heads,
            "intermediate_size": rng.choice([12, 40]),
            "num_hidden_layers": rng.choice([1, 2, 3]),
            "hidden_act": rng.choice(["quick_gelu", "gelu", "relu"]),
            "layer_norm_eps": rng.choice([1e-5, 1e-3]),
            "projection_dim": 7,
        }

    vocab = rng.choice([40, 61])
    text = tower() | {"vocab_size": vocab, "max_position_embeddings": rng.choice([12, 20]), "pad_token_id": 0}
    text |= {"bos_token_id": vocab - 2, "eos_token_id": 2 if seed % 2 else vocab - 1}
    patch = rng.choice([3, 4, 5])
    vision = tower() | {"patch_size": patch, "image_size": patch * rng.choice([2, 3]) + rng.choice([0, 1])}
    vision |= {"num_channels": rng.choice([1, 3])}
    options = {"projection_dim": rng.choice([6, 20]), "logit_scale_init_value": rng.choice([1.0, 2.6592, 5.5])}
    return transformers.CLIPConfig(text_config=text, vision_config=vision, **options | values)


def reference(kind: str, seed: int, **values: Any) -> Any:
    torch.manual_seed(seed)
    config = drawn(seed, num_labels=3, **values)
    own = config.vision_config if kind.startswith("clip_vision") else config
    own._attn_implementation = "eager"
    model = shake(CLASSES[kind](own)).eval()
    if kind == "clip features":
        model.logit_scale.data.fill_(config.logit_scale_init_value)
    return model


def pictures(config: Any, count: int = 3, size: tuple[int, int] | None = None) -> torch.Tensor:
    vision = getattr(config, "vision_config", config)
    return torch.randn(count, vision.num_channels, *(size or (vision.image_size, vision.image_size)))


def texts(config: Any, count: int = 3) -> dict[str, torch.Tensor]:
    """Ids with the end token (the largest id) somewhere, padded with it or with 0, and hidden there."""
    vocab, time = config.text_config.vocab_size, 10
    ids = torch.randint(3, vocab - 2, (count, time))
    mask = torch.ones_like(ids)
    for row in range(count):
        stop = time - 1 - 2 * row
        ids[row, stop:] = vocab - 1 if row % 2 else 0
        ids[row, stop] = vocab - 1
        mask[row, stop + 1 :] = 0
    return {"input_ids": ids, "attention_mask": mask}
