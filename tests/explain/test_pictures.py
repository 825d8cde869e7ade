"""CLIP seen through the seam: attention of both towers, patches that mattered, texts × pictures."""

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.explain.questions import QUESTIONS, question
from clearhead.units import PatchUnit
from clearhead.views.terminal import text_of
from tests.clip_folder import make_clip
from tests.image.made import noise

PICTURE = noise(48, 24, seed=3)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return ch.load(make_clip(tmp_path_factory.mktemp("clip")))


@pytest.fixture(scope="module")
def labelled(clip):
    return clip.with_labels(["a red square", "a cat", "a dog"])


def test_attention_of_either_tower(clip):
    seen = ch.explain.attention(clip, PICTURE)
    out = clip.model(**clip.codec(PICTURE), output_attentions=True)
    want = torch.stack(out.vision_model_output.attentions)[:, 0].detach().numpy()
    np.testing.assert_allclose(seen.weights, want, rtol=1e-5, atol=1e-6)
    assert seen.tokens[0].special and all(isinstance(unit, PatchUnit) for unit in seen.tokens[1:])
    text = ch.explain.attention(clip, "a red square")
    assert text.weights.shape[-1] == len(clip.tokenizer.encode("a red square"))
    assert np.triu(text.weights[0, 0], 1).max() == 0  # it reads left to right


def test_with_labels_it_is_the_same_model(clip, labelled):
    want = clip.classify(PICTURE, labels=["a red square", "a cat", "a dog"])
    found = labelled.classify(PICTURE)
    assert [one.label for one in found] == [one.label for one in want]
    assert [one.score for one in found] == pytest.approx([one.score for one in want], rel=1e-5)
    assert labelled.model.stack is clip.model.vision
    assert clip.with_labels(["cat"], template="a photo of a {}").classify(PICTURE)[0].score == 1.0


@pytest.mark.parametrize("method", ["gradient-x-input", "gradient-norm", "integrated-gradients", "occlusion"])
def test_patches_that_mattered(labelled, method):
    found = ch.explain.saliency(labelled, PICTURE, method=method, target="a cat", against="a dog")
    assert found.scores.shape == (1, 10) and found.scores.sum() == pytest.approx(1.0)
    logits = labelled.model(**labelled.codec(PICTURE)).logits[0]
    assert found.outputs[0].logit == pytest.approx(float(logits[1] - logits[2]), rel=1e-4, abs=1e-5)
    if method == "integrated-gradients":
        assert abs(found.unexplained[0]) < 0.05 * max(1.0, abs(found.outputs[0].logit))


def test_occlusion_says_what_happens_without_a_patch(labelled):
    found = ch.explain.saliency(labelled, PICTURE, method="occlusion", target="a cat")

    def without_patch_4(x):
        x = x.clone()
        x[:, 4] = 0
        return x

    inputs = labelled.codec(PICTURE)
    with torch.no_grad():
        whole = labelled.model(**inputs).logits[0, 1]
        with ch.trace(labelled.model, replace={"embed.patches": without_patch_4}):
            less = labelled.model(**inputs).logits[0, 1]
    assert found.contributions[0, 4] == pytest.approx(float(whole - less), rel=1e-3, abs=1e-5)


def test_patching_between_two_pictures(labelled):
    found = ch.explain.patching(labelled, PICTURE, noise(48, 24, seed=4), answer="a cat")
    assert found.effect.shape[1] == 10


def test_texts_and_pictures(clip, tmp_path):
    for n in range(3):
        noise(30, 30, seed=n).save(tmp_path / f"{n}.png")
    pictures = sorted(tmp_path.glob("*.png"))
    found = ch.explain.text_picture_matrix(clip, ["a cat", "a dog"], pictures)
    np.testing.assert_allclose(found.logits, clip.similarity(["a cat", "a dog"], pictures).detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(found.probabilities.sum(0), np.ones(3), rtol=1e-6)
    assert found.pictures == ["0.png", "1.png", "2.png"]
    asked = question("text-picture-matrix").ask(clip, "a cat; a dog", str(tmp_path))
    np.testing.assert_allclose(asked.logits, found.logits)
    shown = text_of(found)
    assert "a cat" in shown and "2.png" in shown
    assert len(list(found.table())) == 7
    with pytest.raises(InputError, match="A CLIP does"):
        ch.explain.text_picture_matrix(ch.load("random-gpt2"), ["a"], pictures)


def test_patches_are_drawn_over_the_picture(labelled, tmp_path):
    found = ch.explain.saliency(labelled, PICTURE)
    assert (found.picture.width, found.picture.height) == PICTURE.size
    assert found.picture.url.startswith("data:image/jpeg;base64,")
    found.save(tmp_path / "why.html")
    assert "data:image/jpeg" in (tmp_path / "why.html").read_text()


def test_patches_are_drawn_as_a_grid(labelled):
    lines = text_of(ch.explain.saliency(labelled, PICTURE)).splitlines()
    grid = [line for line in lines if set(line.strip()) <= set("░▒▓█ ") and line.strip()]
    assert 1 <= len(grid) <= 3 and "█" in "".join(grid) and any("[class]" in line for line in lines)


def test_every_question_is_answered_or_refused_in_words(clip, labelled, tmp_path):
    PICTURE.save(tmp_path / "a.png")
    path = str(tmp_path / "a.png")
    answered = set()
    for pipe, raw in ((clip, path), (clip, "a red square"), (labelled, path)):
        for name, asked in QUESTIONS.items():
            try:
                asked.ask(pipe, raw, second=path if asked.second == "needed" else None)
                answered.add(name)
            except InputError as error:
                assert len(str(error)) > 20
    assert {"attention", "query-key", "saliency", "neurons", "factors", "ablation"} <= answered
