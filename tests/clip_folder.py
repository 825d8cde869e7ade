"""A small CLIP folder with all its files, made by transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from clearhead.text.readable import BYTE_OF
from tests.tiny import shake

WORDS = "a photo of red green blue square circle the cat dog big small picture with and on".split()


def write_tokenizer(folder: Path, positions: int = 16) -> int:
    """CLIP's files, with a token for each of WORDS; how many tokens there are."""
    letters = list(BYTE_OF)
    merges: list[tuple[str, str]] = []
    tokens = [*letters, *(letter + "</w>" for letter in letters)]
    for word in WORDS:
        parts = [*word[:-1], word[-1] + "</w>"]
        while len(parts) > 1:
            if (parts[0], parts[1]) not in merges:
                merges.append((parts[0], parts[1]))
            parts[:2] = [parts[0] + parts[1]]
            tokens.append(parts[0])
    tokens = list(dict.fromkeys([*tokens, "<|startoftext|>", "<|endoftext|>"]))
    (folder / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    settings = {"tokenizer_class": "CLIPTokenizer", "model_max_length": positions}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(tokens)


def make_clip(folder: Path, seed: int = 0, **options: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    vocab = write_tokenizer(folder)
    torch.manual_seed(seed)
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    tower |= {"projection_dim": 12}
    text = {**tower, "vocab_size": vocab, "max_position_embeddings": 16, "bos_token_id": vocab - 2}
    text |= {"eos_token_id": vocab - 1, "pad_token_id": vocab - 1}
    vision = {**tower, "image_size": 24, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12, **options)
    shake(transformers.CLIPModel(config)).save_pretrained(folder)
    CLIPImageProcessorPil(size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24}).save_pretrained(folder)
    return folder
