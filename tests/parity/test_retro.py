"""RETRO: against the package retro-pytorch, and against the paper's equations written out one position at a time."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import clearhead as ch
from clearhead import hub
from clearhead.errors import ClearheadError, ConfigError
from clearhead.models import family
from clearhead.models.retrieval import RetrievalModel
from tests.parity.retro_reference import retro_class
from tests.tiny import shake

RETRO = retro_class()
FAMILY = family("retro")
VOCABULARY = 50


def draw(rng: random.Random) -> dict[str, Any]:
    """The arguments of a small model of the package."""
    deep = rng.random() < 0.3
    return {
        "num_tokens": VOCABULARY,
        "max_seq_len": 40,
        "enc_dim": rng.choice([16, 24]),
        "enc_depth": rng.choice([1, 2, 3]),
        "enc_cross_attn_layers": rng.choice([None, [1], [2]]),
        "dec_depth": rng.choice([1, 2, 4]),
        "dec_cross_attn_layers": rng.choice([[1], [1, 3], [2, 4], None]),
        "heads": rng.choice([8, 3]),
        "dec_dim": rng.choice([16, 32]),
        "dim_head": rng.choice([32, 40]),
        "chunk_size": rng.choice([3, 4, 8]),
        "pad_id": rng.choice([0, 7]),
        "gated_rmsnorm": rng.random() < 0.3,
        "use_deepnet": deep,
        "dec_scale_residual": rng.choice([None, 1.3]),
        "enc_scale_residual": rng.choice([None, 0.9]),
    }


def as_tuples(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}


def published(folder: Path, arguments: dict[str, Any], seed: int = 0) -> Any:
    """A model of the package, and its folder."""
    torch.manual_seed(seed)
    reference = shake(RETRO(**as_tuples(arguments)))
    folder.mkdir(exist_ok=True)
    save_file({name: t.contiguous() for name, t in reference.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "retro", "format": "retro-pytorch", **arguments}))
    return reference


def neighbors_for(arguments: dict[str, Any], ids: Tensor, k: int = 2, tokens: int | None = None) -> Tensor:
    """Random ones, some of them padded: a few tokens, a whole neighbour, all neighbours of a chunk."""
    size, pad = arguments["chunk_size"], arguments["pad_id"]
    neighbors = torch.randint(0, VOCABULARY, (len(ids), ids.shape[1] // size, k, tokens or 2 * size))
    neighbors[:, ::2, 0, -2:] = pad
    neighbors[0, 0, k - 1] = pad
    neighbors[-1, -1] = pad
    return neighbors


def close(got: Tensor, want: Tensor, tolerance: float = 1e-5) -> bool:
    return float((got - want).abs().max()) <= tolerance * float(want.abs().max())


@pytest.mark.parametrize("seed", range(16))
def test_retro_gives_the_numbers_of_retro_pytorch_and_its_files_back(seed, tmp_path):
    arguments = draw(random.Random(seed))
    reference = published(tmp_path / "there", arguments, seed)
    model = ch.load(tmp_path / "there").model
    assert isinstance(model, RetrievalModel)
    size = arguments["chunk_size"]
    for time in (size, size + 1, 2 * size - 1, 3 * size, 37):
        ids = torch.randint(0, VOCABULARY, (3, time))
        for k, tokens in ((2, 2 * size), (1, size), (3, size + 1)):
            neighbors = neighbors_for(arguments, ids, k, tokens)
            with torch.no_grad():
                want, got = reference(ids, neighbors), model(input_ids=ids, neighbor_ids=neighbors).logits
            assert close(got, want), (arguments, time, k)
        with torch.no_grad():
            assert close(model(input_ids=ids).logits, reference(ids)), arguments

    hub.save_model(model, tmp_path / "back")
    stored = load_file(tmp_path / "back" / "model.safetensors")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    kept = {name: config[name] for name in arguments if name in config}
    again = RETRO(**as_tuples(kept)).eval()
    again.load_state_dict(stored)  # strict: every tensor that the package has, and no other
    with torch.no_grad():
        assert torch.equal(again(ids, neighbors), reference(ids, neighbors))
    assert hub.load_model(tmp_path / "back").config == model.config


def test_retro_pytorchs_defaults_are_its_own(tmp_path):
    small = {"num_tokens": VOCABULARY, "enc_dim": 16, "dec_dim": 16, "dim_head": 32, "max_seq_len": 200}
    reference = published(tmp_path, small)
    model = ch.load(tmp_path).model
    assert [n for n, block in enumerate(model.stack.blocks) if block.reads_neighbors] == [0, 2, 5, 8]
    assert model.chunk_size == 64 and model.hidden_id == 0 and len(model.neighbor_encoder.layers) == 2
    ids, neighbors = torch.randint(1, VOCABULARY, (1, 150)), torch.randint(0, VOCABULARY, (1, 2, 2, 128))
    with torch.no_grad():
        want, got = reference(ids, neighbors), model(input_ids=ids, neighbor_ids=neighbors).logits
        bare = model(input_ids=ids).logits
    assert close(got, want)
    assert torch.allclose(got[:, :63], bare[:, :63], atol=1e-6) and not close(got[:, 63], bare[:, 63], 1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_retro_loss_and_gradients_are_those_of_retro_pytorch(seed, tmp_path):
    arguments = draw(random.Random(seed + 50))
    reference = published(tmp_path, arguments, seed).train()
    model = ch.load(tmp_path).model.train()
    size, pad = arguments["chunk_size"], arguments["pad_id"]
    ids = torch.randint(0, VOCABULARY, (2, 3 * size + 1))
    ids[ids == pad] = (pad + 1) % VOCABULARY
    neighbors = torch.randint(0, VOCABULARY, (2, 3, 2, 2 * size))
    want = reference(ids, neighbors, return_loss=True)
    out = model(input_ids=ids, neighbor_ids=neighbors, labels=ids)
    torch.testing.assert_close(out.loss, want)
    want.backward()
    out.loss.backward()
    pairs = {
        "stack.embed.tokens.weight": "token_emb.weight",
        "neighbor_encoder.layers.0.attention.key.weight": "encoder.layers.0.0.fn.to_k.weight",
        "stack.layers.0.feedforward.up.weight": "decoder.layers.0.2.fn.ff.0.weight",
    }
    first = min(model.config.chunked_layers, default=None)
    if first is not None:
        there = f"decoder.layers.{first - 1}.1.fn.cross_attn"
        pairs[f"stack.layers.{first - 1}.chunked_attention.null_key"] = f"{there}.null_k"
        pairs[f"stack.layers.{first - 1}.chunked_attention.value.weight"] = f"{there}.to_v.weight"
    for ours, theirs in pairs.items():
        got, expected = model.get_parameter(ours).grad, reference.get_parameter(theirs).grad
        if expected is None:  # no layer looks at neighbours
            assert got is None or not got.any()
        else:
            assert close(got, expected, 1e-4), ours


def test_retro_in_half_precision_stays_near(tmp_path):
    arguments = draw(random.Random(3)) | {"use_deepnet": False, "dec_cross_attn_layers": [1]}
    reference = published(tmp_path, arguments)
    ids = torch.randint(1, VOCABULARY, (2, 25))
    neighbors = neighbors_for(arguments, ids)
    with torch.no_grad():
        want = reference(ids, neighbors)
        for dtype, tolerance in (("bfloat16", 0.05), ("float16", 0.01)):
            got = ch.load(tmp_path, dtype=dtype).model(input_ids=ids, neighbor_ids=neighbors).logits
            assert got.dtype == getattr(torch, dtype) and close(got.float(), want, tolerance)


@pytest.mark.parametrize(
    "change, named",
    [
        ({"norm_klass": "LayerNorm"}, "norm_klass"),
        ({"dim_head": 16}, "dim_head"),
        ({"dec_depth": 0}, "dec_depth"),
        ({"dec_cross_attn_layers": "all"}, "dec_cross_attn_layers"),
        ({"num_attention_heads": 4}, "num_attention_heads"),
        ({"attention_bias": True}, "attention_bias"),
    ],
)
def test_retro_refuses_by_name_what_retro_pytorch_does_not_do(change, named, tmp_path):
    published(tmp_path, draw(random.Random(0)))
    raw = json.loads((tmp_path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ClearheadError, match=named):
        ch.load(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"chunk_size": 1},
        {"chunked_attention_layers": [0]},
        {"chunked_attention_layers": [13]},
        {"encoder_cross_attention_layers": [3]},
        {"norm": "batch_norm"},
        {"embedding_size": 7},
        {"neighbor_positions": "learned"},
        {"residual_scale": 2.0},
    ],
)
def test_retro_refuses_what_makes_no_model(options):
    with pytest.raises(ConfigError):
        FAMILY.make(FAMILY.config(**options), device="meta")


# ---- the paper


class Paper:
    """The paper's equations for one text, position by position; no part of the library computes anything here."""

    def __init__(self, model: RetrievalModel) -> None:
        self.model, self.config = model, model.config
        self.weights = {name: p.detach().double() for name, p in model.named_parameters(remove_duplicate=False)}

    def rms(self, x: Tensor, name: str) -> Tensor:
        return x / (x.pow(2).mean() + self.config.norm_eps).sqrt() * self.weights[f"{name}.weight"]

    def attend(self, name: str, x: Tensor, place: int, others: list[tuple[Tensor, int]], heads: int, d: int) -> Tensor:
        """One query at its place, and what it sees, each with its place."""
        w = {part: self.weights[f"{name}.{part}.weight"] for part in ("query", "key", "value", "output")}
        to_distance = self.weights.get(f"{name}.relative.distance.weight")
        width = None if to_distance is None else to_distance.shape[1]
        q = (w["query"] @ x).view(heads, d)
        out = []
        for head in range(heads):
            scores, values = [], []
            for other, at in others:
                k, v = ((w[part] @ other).view(heads, d)[head] for part in ("key", "value"))
                score = q[head] @ k
                if width is not None:
                    angles = [(place - at) / 10_000 ** (2 * i / width) for i in range(width // 2)]
                    sinusoid = torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles]).double()
                    score = score + q[head] @ (to_distance @ sinusoid).view(heads, d)[head]
                scores.append(score / math.sqrt(d))
                values.append(v)
            shares = torch.stack(scores).softmax(0)
            out.append((shares[:, None] * torch.stack(values)).sum(0))
        return w["output"] @ torch.cat(out)

    def feed(self, x: Tensor, name: str) -> Tensor:
        up, down = (self.weights[f"{name}.feedforward.{part}.weight"] for part in ("up", "down"))
        return x + down @ torch.nn.functional.gelu(up @ self.rms(x, f"{name}.feedforward_norm"))

    def encode(self, tokens: list[int], chunk: list[Tensor]) -> list[tuple[Tensor, int]]:
        """A neighbour, beside the states of the chunk that it belongs to; its real tokens with their places."""
        config, table = self.config, self.weights["neighbor_encoder.embed.tokens.weight"]
        heads, d = config.encoder_heads, config.encoder_head_dim
        h = {place: table[token] for place, token in enumerate(tokens) if token != config.pad_token_id}
        for n in range(config.encoder_layers):
            name = f"neighbor_encoder.layers.{n}"
            normed = {p: self.rms(x, f"{name}.attention_norm") for p, x in h.items()}
            seen = [(x, p) for p, x in normed.items()]
            h = {p: x + self.attend(f"{name}.attention", normed[p], p, seen, heads, d) for p, x in h.items()}
            if n + 1 in config.cross_attending_layers:
                beside = [(x, p) for p, x in enumerate(chunk)]
                norm = f"{name}.cross_attention_norm"
                h = {
                    p: x + self.attend(f"{name}.cross_attention", self.rms(x, norm), p, beside, heads, d)
                    for p, x in h.items()
                }
            h = {p: self.feed(x, name) for p, x in h.items()}
        return [(self.rms(x, "neighbor_encoder.final_norm"), p) for p, x in h.items()]

    def logits(self, ids: list[int], neighbors: list[list[list[int]]]) -> Tensor:
        config, m = self.config, self.config.chunk_size
        heads, d = config.num_attention_heads, config.head_dim
        h = [self.weights["stack.embed.tokens.weight"][token] for token in ids]
        encoded: dict[int, list[tuple[Tensor, int]]] | None = None
        for n in range(config.num_hidden_layers):
            name = f"stack.layers.{n}"
            normed = [self.rms(x, f"{name}.attention_norm") for x in h]
            seen = [(x, p) for p, x in enumerate(normed)]
            h = [x + self.attend(f"{name}.attention", normed[p], p, seen[: p + 1], heads, d) for p, x in enumerate(h)]
            if n + 1 in config.chunked_layers:
                if encoded is None:  # by the states at the first such layer
                    encoded = {
                        u: [pair for each in chosen for pair in self.encode(each, h[u * m : (u + 1) * m])]
                        for u, chosen in enumerate(neighbors)
                    }
                looked = []
                for p, x in enumerate(h):
                    u, place = (p + 1) // m - 1, m - 1 + (p + 1) % m
                    if u >= 0 and encoded[u]:
                        query = self.rms(x, f"{name}.chunked_attention_norm")
                        x = x + self.attend(f"{name}.chunked_attention", query, place, encoded[u], heads, d)
                    looked.append(x)
                h = looked
            h = [self.feed(x, name) for x in h]
        final = torch.stack([self.rms(x, "stack.final_norm") for x in h])
        return final @ self.weights["head.output.weight"].t()


@pytest.mark.parametrize("seed", range(4))
def test_retro_computes_what_the_paper_says(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    config = FAMILY.config(
        vocab_size=23,
        hidden_size=12,
        num_hidden_layers=3,
        num_attention_heads=rng.choice([1, 2]),
        head_dim=rng.choice([4, 6]),
        chunk_size=rng.choice([2, 3]),
        chunked_attention_layers=rng.choice([[2, 3], [1, 3], [3]]),
        encoder_hidden_size=10,
        encoder_heads=2,
        encoder_head_dim=4,
        encoder_cross_attention_layers=rng.choice([[1], None]),
        share_embeddings=False,
        pad_token_id=0,
        tie_word_embeddings=rng.random() < 0.5,
    )
    model = shake(FAMILY.make(config))
    time, m = 8, config.chunk_size
    ids = torch.randint(1, 23, (2, time))
    neighbors = torch.randint(1, 23, (2, time // m, 2, 2 * m))
    neighbors[0, 0, 1, m:] = 0  # a document's last chunk has no continuation
    neighbors[1, 1, 1] = 0
    neighbors[0, 1] = 0  # nothing was found
    with torch.no_grad():
        got = model.double()(input_ids=ids, neighbor_ids=neighbors).logits
    for row in range(2):
        want = Paper(model).logits(ids[row].tolist(), neighbors[row].tolist())
        assert close(got[row], want, 1e-6)


def test_retro_presets_have_the_papers_sizes():
    """Millions of parameters without embeddings, with the parts for retrieval and without them: the paper's table."""
    paper = {"retro-172m": (172, 132), "retro-425m": (425, 368), "retro-1.5b": (1451, 1309), "retro-7.5b": (7532, 6982)}
    for name, (whole, base) in paper.items():
        model = FAMILY.make(FAMILY.preset(name), device="meta")
        assert isinstance(model, RetrievalModel)
        sizes = {n: p.numel() for n, p in model.named_parameters() if "embed.tokens" not in n and "head." not in n}
        retrieval = sum(sizes.get(n, 0) for n in model.retrieval_parameters())
        assert sum(sizes.values()) / 1e6 == pytest.approx(whole, rel=5e-3)
        assert (sum(sizes.values()) - retrieval) / 1e6 == pytest.approx(base, rel=5e-3)


def test_retro_looks_in_every_third_layer_from_the_sixth_or_the_ninth():
    assert FAMILY.config().chunked_layers == {6, 9, 12}
    assert FAMILY.config(num_hidden_layers=24).chunked_layers == {9, 12, 15, 18, 21, 24}


def test_retro_saved_here_opens_here(tmp_path):
    torch.manual_seed(0)
    options = {"vocab_size": 23, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 6}
    config = FAMILY.config(
        **options, chunk_size=2, chunked_attention_layers=[2], encoder_hidden_size=8, encoder_heads=2,
        encoder_head_dim=4, null_key=True, embedding_size=10, tie_word_embeddings=False, pad_token_id=0,
    )  # fmt: skip
    model = shake(FAMILY.make(config))
    hub.save_model(model, tmp_path / "here")
    again = hub.load_model(tmp_path / "here")
    assert again.config == config
    ids, neighbors = torch.randint(1, 23, (2, 7)), torch.randint(0, 23, (2, 3, 2, 4))
    with torch.no_grad():
        want = model(input_ids=ids, neighbor_ids=neighbors).logits
        assert torch.equal(again(input_ids=ids, neighbor_ids=neighbors).logits, want)
