"""A picture in place of a text: attention, attribution and patching answer for any units, and no tokenizer is there."""

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import ablation, attention, hidden_states, neurons, patching, query_key, saliency
from clearhead.explain.questions import QUESTIONS
from clearhead.nn.tracing import trace
from clearhead.pipeline import TextPipeline
from clearhead.text import train_tokenizer
from clearhead.text.units import display_texts
from tests.seam.pictures import ImagePipeline, PatchCodec
from tests.seam.tiny_lstm import FAMILY as LSTM
from tests.seam.tiny_lstm import TinyLSTMConfig
from tests.seam.tiny_vit import FAMILY as VIT
from tests.seam.tiny_vit import TinyViTConfig


@pytest.fixture(scope="module")
def pipe():
    torch.manual_seed(0)
    model = VIT.make(TinyViTConfig(image_size=12))  # 3 × 3 patches of 4 × 4 pixels
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return ImagePipeline(model, PatchCodec(4), name="eye")


@pytest.fixture(scope="module")
def picture():
    return np.random.default_rng(0).random((12, 12)).astype("float32")


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
    other[4:8, 4:8] = 3.0  # the patch in the middle
    found = patching(pipe, picture, other, layers=0, tap="input", answer="LABEL_1")
    assert found.effect.shape == (1, 9)
    assert found.effect[0, 4] == pytest.approx(1, abs=1e-4)  # the only one that differs brings all of it back
    np.testing.assert_allclose(np.delete(found.effect[0], 4), 0, atol=1e-5)
    assert ablation(pipe, picture).effect.shape == (2, 2)
    assert neurons(pipe, picture, top=5).activations.shape == (5, 9)


def test_which_questions_a_picture_can_be_asked(pipe, picture):
    reasons = {name: one.fits(pipe) for name, one in QUESTIONS.items()}
    fits = {"attention", "query-key", "attention-steps", "ablation", "saliency", "patching", "neurons", "factors",
            "walk", "parameters"}  # fmt: skip
    assert {name for name, reason in reasons.items() if reason is None} - {"prediction"} == fits
    assert QUESTIONS["attention"].ask(pipe, picture, layers="1").layers == [1]
    with pytest.raises(InputError, match="reads no text"):
        QUESTIONS["similarity"].ask(pipe, picture)


def test_findings_of_pictures_are_printed_and_saved(pipe, picture, tmp_path):
    for found, drawn in ((attention(pipe, picture), "1,2"), (saliency(pipe, picture), "██")):
        assert drawn in repr(found)
        assert '"kind": "patch"' in found.save(tmp_path / f"{found.kind}.json").read_text()
        assert found.save(tmp_path / f"{found.kind}.html").stat().st_size > 1000


# ---- a recurrent model


@pytest.fixture(scope="module")
def lstm():
    torch.manual_seed(1)
    tokenizer = train_tokenizer(
        ["the cat sat on the mat", "a dog ran"] * 3, kind="bpe", vocab_size=280, show_progress=False
    )
    end = tokenizer.eos_token_id
    config = TinyLSTMConfig(vocab_size=len(tokenizer), bos_token_id=end, eos_token_id=end, pad_token_id=end)
    return TextPipeline(LSTM.make(config), tokenizer, name="lstm")


def test_attribution_through_an_lstm(lstm):
    found = saliency(lstm, "the cat sat on the", target=" mat", method="gradient-x-input")
    ids = [token.id for token in found.tokens]
    table = lstm.model.stack.embed.tokens.weight
    vectors = table[torch.tensor([ids[:-1]])].detach().requires_grad_()
    probability = lstm.model(inputs_embeds=vectors).logits[0, -1].log_softmax(-1)[ids[-1]]
    (gradient,) = torch.autograd.grad(lstm.model(inputs_embeds=vectors).logits[0, -1, ids[-1]], vectors)
    want = (gradient * vectors).norm(dim=-1)[0]
    np.testing.assert_allclose(found.scores[-1, : len(want)], (want / want.sum()).detach().numpy(), rtol=1e-4)
    assert found.outputs[-1].probability == pytest.approx(float(probability.exp()), rel=1e-4)


def test_the_logit_lens_of_an_lstm(lstm):
    found = hidden_states(lstm, "the cat sat on the")
    with torch.no_grad():
        best = lstm.model(**lstm.read("the cat sat on the").inputs).logits[0].argmax(-1)
    assert found.layers == [0, 1, 2]
    assert [row[0][0] for row in found.top[-1]] == display_texts(lstm.tokenizer, best.tolist())  # its answer
    embedded = lstm.model.stack.embed.tokens.weight[[unit.id for unit in found.tokens]].detach()
    first = (embedded @ lstm.model.stack.embed.tokens.weight.T).argmax(-1)  # layer 0: the embedding, read as an answer
    assert [row[0][0] for row in found.top[0]] == display_texts(lstm.tokenizer, first.tolist())


def test_a_model_without_attention_says_so(lstm):
    for name in ("attention", "ablation", "attention-steps"):
        assert "attention" in (QUESTIONS[name].fits(lstm) or ""), name
    with pytest.raises(InputError, match="attention"):
        attention(lstm, "the cat")
    assert QUESTIONS["saliency"].fits(lstm) is None and QUESTIONS["hidden-states"].fits(lstm) is None
