"""Transformer-XL against a second one, written from its paper (arXiv:1901.02860) in plain torch.

transformers no longer ships the family. The reference shares no trick with clearhead: distances are looked up pair by
pair, and all embeddings stand in one table.
"""

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

CLASSES = {
    "causal-lm": "TransfoXLLMHeadModel",
    "sequence-classification": "TransfoXLForSequenceClassification",
    "features": "TransfoXLModel",
}


def draw_transfo_xl(rng: random.Random, task: str) -> dict[str, Any]:
    memory = rng.choice([0, 3, 6, 12])
    cutoffs = rng.choice([[], [9], [7, 20]])
    width = rng.choice([8, 12, 14])
    config = {
        "vocab_size": rng.choice([31, 50]),
        "cutoffs": cutoffs,
        "div_val": rng.choice([1, 2, 3]),
        "d_model": width,
        "d_embed": rng.choice([width, 9, 18]),
        "n_head": rng.choice([1, 2, 3]),
        "d_head": rng.choice([3, 4, 5]),
        "d_inner": rng.choice([7, 20]),
        "n_layer": rng.choice([1, 2, 3]),
        "mem_len": memory,
        "clamp_len": rng.choice([-1, 4, 1000]),
        "same_length": memory > 0 and rng.choice([True, False]),
        "pre_lnorm": rng.choice([True, False]),
        "untie_r": rng.choice([True, False]),
        "layer_norm_epsilon": rng.choice([1e-5, 1e-3]),
        "tie_word_embeddings": rng.choice([True, False]),
        "id2label": {str(n): f"L{n}" for n in range(rng.choice([1, 2, 5]))},
        "pad_token_id": 0,
        "eos_token_id": 2,
    }
    shared = rng.choice([True, False])
    return config | rng.choice(
        [{"proj_share_all_but_first": shared}, {"tie_projs": [rng.choice([True, False]) for _ in [0, *cutoffs]]}]
    )


class Layer(nn.Module):
    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        self.c = c
        width, size = c["d_model"], c["n_head"] * c["d_head"]
        self.dec_attn = nn.Module()
        self.dec_attn.qkv_net = nn.Linear(width, 3 * size, bias=False)
        self.dec_attn.r_net = nn.Linear(width, size, bias=False)
        self.dec_attn.o_net = nn.Linear(size, width, bias=False)
        self.dec_attn.layer_norm = nn.LayerNorm(width, eps=c["layer_norm_epsilon"])
        self.dec_attn.r_w_bias = nn.Parameter(torch.zeros(c["n_head"], c["d_head"]))
        self.dec_attn.r_r_bias = nn.Parameter(torch.zeros(c["n_head"], c["d_head"]))
        self.pos_ff = nn.Module()
        steps = nn.Linear(width, c["d_inner"]), nn.ReLU(), nn.Identity(), nn.Linear(c["d_inner"], width)
        self.pos_ff.CoreNet = nn.Sequential(*steps)
        self.pos_ff.layer_norm = nn.LayerNorm(width, eps=c["layer_norm_epsilon"])

    def forward(self, x: Tensor, memory: Tensor, waves: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """x (batch, i, width), memory (batch, m, width), waves (i, j, width), visible (batch, i, j), j = m + i."""
        a, heads, pre = self.dec_attn, (self.c["n_head"], self.c["d_head"]), self.c["pre_lnorm"]
        both = torch.cat((memory, x), 1)
        q, k, v = (t.unflatten(-1, heads) for t in a.qkv_net(a.layer_norm(both) if pre else both).chunk(3, -1))
        q = q[:, memory.shape[1] :]
        r = a.r_net(waves).unflatten(-1, heads)  # (i, j, heads, d)
        terms = (  # the paper's (a) + (c), and (b) + (d)
            torch.einsum("bihd,bjhd->bhij", q + a.r_w_bias, k) + torch.einsum("bihd,ijhd->bhij", q + a.r_r_bias, r)
        )
        scores = (terms / heads[1] ** 0.5).masked_fill(~visible[:, None], -torch.inf)
        weights = scores.softmax(-1)
        out = a.o_net(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))
        x = x + out if pre else a.layer_norm(x + out)
        f = self.pos_ff
        return (x + f.CoreNet(f.layer_norm(x)) if pre else f.layer_norm(x + f.CoreNet(x))), weights


class Words(nn.Module):
    """The adaptive table of words: as embeddings (biased=False) or as an output layer."""

    def __init__(self, c: dict[str, Any], biased: bool) -> None:
        super().__init__()
        ends = [*c["cutoffs"], c["vocab_size"]]
        self.sizes = [high - low for low, high in zip([0, *ends], ends, strict=False)]
        self.one = c["div_val"] == 1
        widths = [c["d_embed"] // c["div_val"] ** n for n in range(len(ends))]
        tables = [c["vocab_size"]] if self.one else self.sizes
        projected = not self.one or c["d_embed"] != c["d_model"]
        projections = nn.ParameterList(
            [nn.Parameter(torch.randn(c["d_model"], w)) for w in widths[: len(tables) if not biased else None]]
            if projected
            else []
        )
        if biased:
            self.out_layers = nn.ModuleList(nn.Linear(w, n) for w, n in zip(widths, tables, strict=False))
            self.out_projs = projections
            if c["cutoffs"]:
                self.cluster_weight = nn.Parameter(torch.randn(len(c["cutoffs"]), c["d_embed"]))
                self.cluster_bias = nn.Parameter(torch.randn(len(c["cutoffs"])))
        else:
            self.emb_layers = nn.ModuleList(nn.Embedding(n, w) for w, n in zip(widths, tables, strict=False))
            self.emb_projs = projections

    def table(self) -> Tensor:
        """(words, width)"""
        projections = list(self.emb_projs)
        rows = [t.weight @ projections[n].t() if projections else t.weight for n, t in enumerate(self.emb_layers)]
        return torch.cat(rows) * (rows[0].shape[1] ** 0.5)

    def log_chances(self, hidden: Tensor) -> Tensor:
        """(…, width) -> (…, words): log p(word) = log p(cluster) + log p(word | cluster)"""
        parts, projections, first = [], list(self.out_projs), None
        for n, size in enumerate(self.sizes):
            x = hidden @ projections[n] if projections else hidden
            if self.one:
                scores = self.out_layers[0](x).split(self.sizes, -1)[n]
            else:
                scores = self.out_layers[n](x)
            if n == 0 and len(self.sizes) > 1:
                scores = torch.cat((scores, x @ self.cluster_weight.t() + self.cluster_bias), -1)
            p = scores.log_softmax(-1)
            first = p if n == 0 else first
            parts.append(p[..., :size] if n == 0 else p + first[..., self.sizes[0] + n - 1, None])
        return torch.cat(parts, -1)


class Body(nn.Module):
    def __init__(self, c: dict[str, Any]) -> None:
        super().__init__()
        self.c = c
        self.word_emb = Words(c, biased=False)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["n_layer"]))
        if not c["untie_r"]:
            for name in ("r_w_bias", "r_r_bias"):
                shared = nn.Parameter(torch.randn(c["n_head"], c["d_head"]))
                setattr(self, name, shared)
                for layer in self.layers:
                    setattr(layer.dec_attn, name, shared)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None, mems: list[Tensor] | None):
        c, (batch, time) = self.c, input_ids.shape
        x = self.word_emb.table()[input_ids]
        if mems is None:
            mems = [x.new_zeros(c["mem_len"], batch, c["d_model"])] * c["n_layer"]
        past = mems[0].shape[0]
        distance = (past + torch.arange(time))[:, None] - torch.arange(past + time)[None]  # (i, j)
        visible = distance >= 0
        if c["same_length"]:
            visible &= distance < c["mem_len"]
        visible = visible.expand(batch, -1, -1)
        if attention_mask is not None:
            shown = torch.cat((torch.ones(batch, past), attention_mask), 1).bool()
            visible = visible & (shown[:, None] | (distance == 0))
        if c["clamp_len"] > 0:
            distance = distance.clamp(max=c["clamp_len"])
        slow = torch.tensor([10000 ** (-2 * n / c["d_model"]) for n in range(c["d_model"] // 2)])
        angle = distance[..., None] * slow
        waves = torch.cat((angle.sin(), angle.cos()), -1)
        states, weights, new = [x], [], []
        for layer, mem in zip(self.layers, mems, strict=True):
            both = torch.cat((mem, x.transpose(0, 1)))
            new.append(both[max(0, len(both) - c["mem_len"]) :].detach())
            x, w = layer(x, mem.transpose(0, 1), waves, visible)
            states.append(x)
            weights.append(w)
        return x, new, tuple(states), tuple(weights)


class PaperTransformerXL(nn.Module):
    def __init__(self, c: dict[str, Any], task: str) -> None:
        super().__init__()
        self.c, self.task = c, task
        self.transformer = Body(c)
        if task == "causal-lm":
            self.crit = Words(c, biased=True)
            words, tied = self.transformer.word_emb, c.get("tie_projs")
            if c["tie_word_embeddings"]:
                for out, table in zip(self.crit.out_layers, words.emb_layers, strict=True):
                    out.weight = table.weight
            if tied is None:
                tied = [False] + [c["proj_share_all_but_first"]] * len(c["cutoffs"])
            for n in range(len(self.crit.out_projs)):
                if tied[n]:
                    self.crit.out_projs[n] = words.emb_projs[0 if c["div_val"] == 1 else n]
        if task == "sequence-classification":
            self.score = nn.Linear(c["d_model"], len(c["id2label"]), bias=False)

    def forward(self, input_ids: Tensor, attention_mask=None, mems=None, labels=None, **_: Any):
        hidden, mems, states, weights = self.transformer(input_ids, attention_mask, mems)
        out = transformers.utils.ModelOutput(mems=mems, hidden_states=states, attentions=weights)
        if self.task == "features":
            out["last_hidden_state"] = hidden
        elif self.task == "causal-lm":
            out["logits"] = self.crit.log_chances(hidden)
            if labels is not None:
                out["loss"] = nn.functional.nll_loss(out["logits"][:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        else:
            last = [max(n for n, token in enumerate(row) if token != 0) for row in input_ids.tolist()]
            out["logits"] = self.score(hidden[torch.arange(len(last)), last])
            if labels is not None and out["logits"].shape[1] == 1:
                out["loss"] = nn.functional.mse_loss(out["logits"][:, 0], labels)
            elif labels is not None:
                out["loss"] = nn.functional.cross_entropy(out["logits"], labels)
        return out

    def published(self) -> dict[str, Tensor]:
        """Every tensor under every name it has, shared ones more than once, as older files hold them."""
        names = dict(self.named_parameters(remove_duplicate=False))
        prefix = "" if self.task == "features" else "transformer."
        return {prefix + n.removeprefix("transformer.") if n[:5] == "trans" else n: p for n, p in names.items()}


class PaperReference(Reference):
    def config(self, rng: random.Random, task: str) -> dict[str, Any]:
        return self.draw(rng, task)

    def build(self, config: dict[str, Any], task: str) -> nn.Module:
        model = PaperTransformerXL(config, task)
        for parameter in model.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.05)
        shake(model)
        if task == "features":  # its names have no prefix, for the harness too
            model.named_parameters = _without_prefix(model)  # type: ignore[method-assign]
        return model

    def save(self, model: PaperTransformerXL, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "model_type": "transfo-xl",
            "architectures": [CLASSES[model.task]],
            "attn_type": 0,
            "sample_softmax": -1,
            "ext_len": 0,
            "tgt_len": 128,
            **model.c,
        }
        (folder / "config.json").write_text(json.dumps(config))
        tensors = {name: t.detach().clone() for name, t in model.published().items()}
        tensors["pos_emb.inv_freq" if model.task == "features" else "transformer.pos_emb.inv_freq"] = torch.ones(4)
        save_file(tensors, folder / "model.safetensors")

    def open(self, folder: Path, task: str) -> nn.Module:
        model = PaperTransformerXL(json.loads((folder / "config.json").read_text()), task).eval()
        stored = load_file(folder / "model.safetensors")
        reached = set()
        with torch.no_grad():
            for name, tensor in model.published().items():
                if name in stored:
                    tensor.copy_(stored.pop(name))
                    reached.add(id(tensor))
        assert not stored
        assert all(id(p) in reached for p in model.parameters())
        return model


def _without_prefix(model: nn.Module):
    original = type(model).named_parameters
    return lambda **o: ((n.removeprefix("transformer."), p) for n, p in original(model, **o))


REFERENCE = PaperReference(
    "transfo-xl",
    dict.fromkeys(CLASSES, PaperTransformerXL),
    draw_transfo_xl,
    takes_positions=False,
    caches=False,  # its memory is compared in test_segment_recurrence.py
)
