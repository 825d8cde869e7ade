"""The 2017 Transformer against torch.nn.Transformer, between embeddings and an output matrix."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.tiny import shake

from .reference import Reference


def draw_transformer(rng: random.Random, task: str) -> dict[str, Any]:
    heads = rng.choice([1, 2, 4])
    vocab, shared = rng.choice([31, 50]), rng.choice([True, False])
    return {
        "vocab_size": vocab,
        "source_vocab_size": None if shared else rng.choice([29, 60]),
        "tie_source_embeddings": shared,
        "tie_word_embeddings": rng.choice([True, False]),
        "d_model": heads * rng.choice([4, 6, 8]),
        "attention_heads": heads,
        "encoder_layers": rng.choice([1, 2, 3]),
        "decoder_layers": rng.choice([1, 2, 3]),
        "feedforward_size": rng.choice([16, 37]),
        "activation": rng.choice(["relu", "gelu"]),
        "norm_first": rng.choice([True, False]),
        "final_norm": rng.choice([True, False]),
        "bias": rng.choice([True, True, False]),
        "layer_norm_eps": rng.choice([1e-5, 1e-3]),
        "positions": rng.choice(["sinusoidal", "learned"]),
        "sinusoidal_layout": rng.choice(["interleaved", "halves"]),
        "max_position_embeddings": 33,
        "scale_embedding": rng.choice([True, False]),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with the embeddings of the 2017 paper around it, written independently of clearhead."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        c = self.config = config
        width = c["d_model"]
        self.target = nn.Embedding(c["vocab_size"], width, padding_idx=0)
        source_size = c["source_vocab_size"] or c["vocab_size"]
        self.source = self.target if c["tie_source_embeddings"] else nn.Embedding(source_size, width, padding_idx=0)
        self.core = nn.Transformer(
            width, c["attention_heads"], c["encoder_layers"], c["decoder_layers"], c["feedforward_size"], 0.0,
            c["activation"], layer_norm_eps=c["layer_norm_eps"], batch_first=True, norm_first=c["norm_first"],
            bias=c["bias"],
        )  # fmt: skip
        if not c["final_norm"]:
            self.core.encoder.norm = self.core.decoder.norm = None
        self.generator = nn.Linear(width, c["vocab_size"], bias=False)
        if c["tie_word_embeddings"]:
            self.generator.weight = self.target.weight
        if c["positions"] == "learned":
            self.source_positions = nn.Embedding(c["max_position_embeddings"], width)
            self.target_positions = nn.Embedding(c["max_position_embeddings"], width)

    def _positions(self, side: str, length: int) -> Tensor:
        c = self.config
        if c["positions"] == "learned":
            return getattr(self, f"{side}_positions").weight[:length]
        width = c["d_model"]
        table = torch.zeros(length, width)
        for pos in range(length):
            for i in range(width // 2):
                angle = torch.tensor(pos / 10000 ** (2 * i / width), dtype=torch.float64)
                at = (2 * i, 2 * i + 1) if c["sinusoidal_layout"] == "interleaved" else (i, width // 2 + i)
                table[pos, at[0]], table[pos, at[1]] = angle.sin(), angle.cos()
        return table

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor, labels=None, **_: Any):
        scale = self.config["d_model"] ** 0.5 if self.config["scale_embedding"] else 1.0
        src = self.source(input_ids) * scale + self._positions("source", input_ids.shape[1])
        tgt = self.target(decoder_input_ids) * scale + self._positions("target", decoder_input_ids.shape[1])
        hidden = self.core(
            src,
            tgt,
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(tgt.shape[1]),
            src_key_padding_mask=attention_mask == 0,
            memory_key_padding_mask=attention_mask == 0,
        )
        logits = self.generator(hidden)
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return transformers.utils.ModelOutput(loss=loss, logits=logits)


class TransformerReference(Reference):
    def config(self, rng: random.Random, task: str) -> dict[str, Any]:
        return self.draw(rng, task)

    def build(self, config: dict[str, Any], task: str) -> nn.Module:
        return shake(TorchTransformer(config))

    def names(self, model: TorchTransformer) -> dict[str, Tensor]:
        """The reference's tensors under the names of the saved format, q, k and v apart."""
        out: dict[str, Tensor] = {"decoder.embed_tokens.weight": model.target.weight}
        if model.source is not model.target:
            out["encoder.embed_tokens.weight"] = model.source.weight
        if model.generator.weight is not model.target.weight:
            out["generator.weight"] = model.generator.weight
        if model.config["positions"] == "learned":
            out["encoder.embed_positions.weight"] = model.source_positions.weight
            out["decoder.embed_positions.weight"] = model.target_positions.weight
        for name, tensor in model.core.named_parameters():
            if "in_proj_" in name:
                kind = name.rsplit("_", 1)[1]
                for letter, part in zip("qkv", tensor.chunk(3), strict=True):
                    out[name.replace(f"in_proj_{kind}", f"{letter}_proj.{kind}")] = part
            else:
                out[name] = tensor
        return out

    def save(self, model: TorchTransformer, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = {"model_type": "transformer", "architectures": ["TransformerForSeq2SeqLM"], **model.config}
        (folder / "config.json").write_text(json.dumps(config))
        tensors = {name: t.detach().clone().contiguous() for name, t in self.names(model).items()}
        save_file(tensors, folder / "model.safetensors")

    def open(self, folder: Path, task: str) -> nn.Module:
        config = json.loads((folder / "config.json").read_text())
        model = TorchTransformer(config).eval()
        stored = load_file(folder / "model.safetensors")
        with torch.no_grad():
            for name, tensor in self.names(model).items():
                tensor.copy_(stored.pop(name))
        assert not stored
        return model


REFERENCE = TransformerReference(
    "transformer",
    {"seq2seq-lm": TorchTransformer},
    draw_transformer,
    takes_positions=False,
    shows_inside=False,
)
