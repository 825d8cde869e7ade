"""A picture in place of a text: attention, attribution and patching answer for any units, and no tokenizer is there."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.explain import ablation, attention, neurons, patching, query_key, saliency
from clearhead.explain.questions import QUESTIONS
from clearhead.models.checkpoint import CheckpointMap
from clearhead.models.family import Family
from clearhead.models.heads import SequenceHead
from clearhead.models.stack_model import StackModel
from clearhead.models.token_config import LayersConfig
from clearhead.nn import Attention, Block, FeedForward, Stack
from clearhead.nn.embedding import Embedder
from clearhead.nn.tracing import tap, trace
from clearhead.pipeline import Pipeline
from clearhead.units import PatchUnit

SIDE, PATCH, WIDTH = 3, 2, 12  # a grid of 3 × 3 patches of 2 × 2 pixels


class Patches(Embedder):
    def __init__(self):
        super().__init__()
        self.patches = nn.Linear(PATCH * PATCH, WIDTH)
        self.places = nn.Parameter(torch.zeros(SIDE * SIDE, WIDTH))

    @property
    def taps(self):
        return ("patches", "output")

    def forward(self, pixels):  # (batch, height, width)
        cut = pixels.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH).flatten(1, 2).flatten(2)
        return tap(self, "output", tap(self, "patches", self.patches(cut)) + self.places)


class ImageCodec:
    def __call__(self, raw, /):
        return {"inputs": torch.as_tensor(raw, dtype=torch.float32)[None]}

    def units(self, raw, /):
        grid = [(n // SIDE, n % SIDE) for n in range(SIDE * SIDE)]
        return [PatchUnit(f"{r},{c}", r, c, c * PATCH, r * PATCH, PATCH, PATCH) for r, c in grid]

    def save(self, folder):
        return []


@dataclass(kw_only=True)
class ImageConfig(LayersConfig):
    family = "tiny-image"
    hidden_size: int = WIDTH
    num_hidden_layers: int = 2
    num_attention_heads: int = 3


def build(config, task):
    def block():
        return Block(
            Attention(WIDTH, 3), FeedForward(WIDTH, 16, "gelu"),
            attention_norm=nn.LayerNorm(WIDTH), feedforward_norm=nn.LayerNorm(WIDTH),
        )  # fmt: skip

    stack = Stack(Patches(), [block() for _ in range(2)], nn.LayerNorm(WIDTH), causal=False)
    return StackModel(config, stack, SequenceHead(config, lambda hidden, inputs: hidden.mean(1)))


FAMILY = Family(
    "tiny-image", "Tiny image classifier", ImageConfig, build, lambda config, model: None,
    lambda config, task: CheckpointMap([]), {"sequence-classification": "TinyImage"}, "sequence-classification",
    modality="image",
)  # fmt: skip


@pytest.fixture(scope="module")
def pipe():
    model = FAMILY.make(ImageConfig(), "sequence-classification")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return Pipeline(model, ImageCodec(), name="eye")


@pytest.fixture(scope="module")
def picture():
    return np.random.default_rng(0).random((SIDE * PATCH, SIDE * PATCH)).astype("float32")


def test_attention_speaks_of_patches(pipe, picture):
    found = attention(pipe, picture)
    assert [(unit.row, unit.column) for unit in found.tokens] == [(r, c) for r in range(3) for c in range(3)]
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-5)
    with trace(pipe.model, "layers.1.attention.weights") as seen, torch.no_grad():
        pipe.model(**pipe.codec(picture))
    np.testing.assert_allclose(found.weights[1], seen["layers.1.attention.weights"][0].numpy(), rtol=1e-5)
    assert query_key(pipe, picture, position=4).keys[0].kind == "patch"
    with pytest.raises(InputError, match="not made of words"):
        attention(pipe, picture, words=True)


@pytest.mark.parametrize("method", ["gradient-x-input", "gradient-norm", "integrated-gradients", "occlusion"])
def test_attribution_to_patches(pipe, picture, method):
    found = saliency(pipe, picture, method=method, target="LABEL_1")
    assert found.scores.shape == (1, 9) and np.nansum(found.scores) == pytest.approx(1)
    if method == "integrated-gradients":
        assert abs(found.unexplained[0]) < 1e-3  # what the patches add explains the score
    if method == "occlusion":  # each patch's vector replaced by zeros, one after the other
        with torch.no_grad():
            whole = float(pipe.model(**pipe.codec(picture)).logits[0, 1])
            for n in range(9):

                def blank(x, n=n):
                    x = x.clone()
                    x[:, n] = 0
                    return x

                with trace(pipe.model, replace={"embed.patches": blank}):
                    without = float(pipe.model(**pipe.codec(picture)).logits[0, 1])
                assert found.contributions[0, n] == pytest.approx(whole - without, abs=1e-5)


def test_patching_brings_a_picture_back(pipe, picture):
    other = picture.copy()
    other[2:4, 2:4] = 3.0  # the patch in the middle
    found = patching(pipe, picture, other, layers=0, tap="input", answer="LABEL_1")
    assert found.effect.shape == (1, 9)
    assert found.effect[0, 4] == pytest.approx(1, abs=1e-4)  # the only one that differs brings all of it back
    np.testing.assert_allclose(np.delete(found.effect[0], 4), 0, atol=1e-5)
    assert ablation(pipe, picture).effect.shape == (2, 3)
    assert neurons(pipe, picture, top=5).activations.shape == (5, 9)


def test_which_questions_a_picture_can_be_asked(pipe, picture):
    reasons = {name: one.fits(pipe) for name, one in QUESTIONS.items()}
    fits = {"attention", "query-key", "attention-steps", "ablation", "saliency", "patching", "neurons", "factors",
            "walk", "positions", "parameters"}  # fmt: skip
    assert {name for name, reason in reasons.items() if reason is None} - {"prediction"} == fits
    assert QUESTIONS["attention"].ask(pipe, picture, layers="1").layers == [1]
    with pytest.raises(InputError, match="reads no text"):
        QUESTIONS["similarity"].ask(pipe, picture)


def test_findings_of_pictures_are_printed_and_saved(pipe, picture, tmp_path):
    for found in (attention(pipe, picture), saliency(pipe, picture)):
        assert "1,2" in repr(found)
        assert '"kind": "patch"' in found.save(tmp_path / f"{found.kind}.json").read_text()
        assert found.save(tmp_path / f"{found.kind}.html").stat().st_size > 1000
