"""Whole small Stable Diffusion folders, saved by diffusers, with a tokenizer made here."""

import json
from pathlib import Path

import diffusers
import torch
from transformers import CLIPTokenizer

from tests.diffusion import reference

WORDS = ["a", "red", "apple", "blue", "pear", "on", "the", "table", "of", "wood", "big", "small"]


def clip_tokenizer(folder: Path) -> CLIPTokenizer:
    """CLIP's kind: letters, letters that end a word, and some words whole."""
    letters = [chr(n) for n in range(ord("a"), ord("z") + 1)] + list("0123456789,.!")
    tokens = letters + [f"{letter}</w>" for letter in letters]
    merges = []
    for word in WORDS:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            merge = f"{parts[0]} {parts[1]}"
            parts[:2] = ["".join(parts[:2])]
            if merge not in merges:
                merges.append(merge)
            if parts[0] not in tokens:
                tokens.append(parts[0])
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return CLIPTokenizer.from_pretrained(folder, model_max_length=77)


def pipeline(
    folder: Path, seed: int = 0, *, fills_in: bool = False, scheduler=None, unet: dict | None = None, cls=None, **vae
) -> diffusers.StableDiffusionPipeline:
    """A random small pipeline, saved to `folder`."""
    options = {"in_channels": 9 if fills_in else 4, "center_input_sample": False, **(unet or {})}
    made = {
        "unet": reference.unet(seed, **options),
        "vae": reference.vae(seed, block_out_channels=(8, 8, 16), latent_channels=4, **vae),
        "text_encoder": reference.text_encoder(seed, vocab_size=200),
        "tokenizer": clip_tokenizer(folder.parent / f"{folder.name}-tokenizer"),
        "scheduler": scheduler
        or diffusers.PNDMScheduler(
            beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1
        ),
    }
    with torch.no_grad():  # predictions about as large as what they predict, so that a drawing does not run away
        made["unet"].conv_out.weight.mul_(0.3)
    cls = cls or (diffusers.StableDiffusionInpaintPipeline if fills_in else diffusers.StableDiffusionPipeline)
    theirs = cls(**made, safety_checker=None, feature_extractor=None, requires_safety_checker=False)
    theirs.save_pretrained(folder)
    theirs.set_progress_bar_config(disable=True)
    return theirs
