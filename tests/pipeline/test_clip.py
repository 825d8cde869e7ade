"""CLIP through its pipeline: the same numbers as transformers' own processor and model, and what can go wrong."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

import clearhead as ch
from clearhead.errors import ConfigError, InputError, TokenizerError
from clearhead.pipeline import ClipPipeline, PicturePipeline, as_text
from clearhead.units import MarkUnit, PatchUnit, TokenUnit
from tests.clip_folder import make_clip
from tests.image.made import noise

TEXTS = ["a photo of a cat", "the big red square with a small blue circle on the picture", "dog"]
PICTURES = [noise(40, 30, seed=1), noise(20, 50, "RGBA", seed=2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def clip(folder):
    return ch.load(folder)


@pytest.fixture(scope="module")
def reference(folder):
    """(texts, pictures) -> the reference's answer"""
    model = transformers.CLIPModel.from_pretrained(folder).eval()
    tokenizer, processor = (
        transformers.CLIPTokenizer.from_pretrained(folder),
        CLIPImageProcessorPil.from_pretrained(folder),
    )

    @torch.no_grad()
    def answer(texts, pictures):
        read = tokenizer(texts, padding=True, return_tensors="pt")
        return model(**read, pixel_values=processor(pictures, return_tensors="pt")["pixel_values"])

    return answer


def test_the_same_numbers(clip, reference):
    want = reference(TEXTS, PICTURES)
    assert isinstance(clip, ClipPipeline)
    torch.testing.assert_close(clip.similarity(TEXTS, PICTURES), want.logits_per_text, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(clip.embed(TEXTS), want.text_embeds, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(clip.embed(PICTURES), want.image_embeds, rtol=1e-5, atol=1e-5)
    read = clip.tokenizer(TEXTS, padding=True, return_tensors="pt")
    pixels = clip.image_processor(PICTURES, return_tensors="pt")["pixel_values"]
    out = clip.model(**read, pixel_values=pixels)
    torch.testing.assert_close(out.logits_per_image, want.logits_per_image, rtol=1e-5, atol=1e-4)


def test_similarity_of_one_and_of_many(clip):
    assert clip.similarity("dog", PICTURES[0]).shape == (1, 1)
    whole = clip.similarity(TEXTS, PICTURES * 3, batch_size=2)
    assert whole.shape == (3, 6)
    torch.testing.assert_close(whole[:, :2], clip.similarity(TEXTS, PICTURES), rtol=1e-5, atol=1e-4)


def test_embed_takes_what_it_is_given(clip, tmp_path):
    PICTURES[0].save(tmp_path / "a photo.png")
    path = tmp_path / "a photo.png"
    one = clip.embed(PICTURES[0])
    assert one.shape == (12,) and abs(float(one.norm()) - 1) < 1e-6
    for again in (path, str(path), np.asarray(PICTURES[0]), PICTURES[0].copy()):
        torch.testing.assert_close(clip.embed(again), one)
    mixed = clip.embed(["dog", path, "a cat"])
    torch.testing.assert_close(mixed[1], one)
    torch.testing.assert_close(mixed[0], clip.embed("dog"), rtol=1e-5, atol=1e-6)
    for wrong, match in (([], "no picture"), ("absent.jpg", "There is no picture"), (" ", "empty"), (3, "string")):
        with pytest.raises(InputError, match=match):
            clip.embed(wrong)
    with pytest.raises(InputError, match="unit length"):
        clip.embed("dog", normalize=False)


def test_classify(clip, reference):
    labels = ["cat", "dog", "red square"]
    want = reference(labels, PICTURES).logits_per_image.softmax(-1)
    found = clip.classify(PICTURES, labels=labels)
    for row, scores in zip(found, want.tolist(), strict=True):
        assert [label.score for label in row] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)
        assert row[0].label == labels[int(np.argmax(scores))]
    assert clip.classify(PICTURES[0], labels=labels) == clip(PICTURES[0], labels=labels)
    assert [label.label for label in clip(PICTURES[0], labels)] == [label.label for label in found[0]]
    template = "a photo of a {}"
    want = reference([template.format(label) for label in labels], PICTURES[:1]).logits_per_image.softmax(-1)[0]
    scores = {label.label: label.score for label in clip.classify(PICTURES[0], labels=labels, template=template)}
    assert [scores[label] for label in labels] == pytest.approx(want.tolist(), abs=1e-4)
    for wrong, match in (
        ({}, "no labels of its own"),
        ({"labels": []}, "labels"),
        ({"labels": ["cat", "cat"]}, "different"),
        ({"labels": labels, "template": "no place"}, "template"),
    ):
        with pytest.raises(InputError, match=match):
            clip.classify(PICTURES[0], **wrong)


def test_search(clip, tmp_path):
    pictures = [noise(30, 30, seed=seed) for seed in range(5)]
    for n, picture in enumerate(pictures):
        picture.save(tmp_path / f"{n}.png")
    hits = clip.search("a red square", tmp_path, top_k=3)
    cosines = (clip.embed(pictures) @ clip.embed("a red square")).tolist()
    best = sorted(range(5), key=lambda n: -cosines[n])[:3]
    assert [hit.index for hit in hits] == best and [hit.picture.name for hit in hits] == [f"{n}.png" for n in best]
    assert [hit.score for hit in hits] == pytest.approx([cosines[n] for n in best], abs=1e-5)
    kept = clip.embed(pictures)
    assert [hit.index for hit in clip.search("a red square", pictures, vectors=kept, top_k=3)] == best
    assert clip.search(pictures[2], pictures)[0].index == 2
    (tmp_path / "none").mkdir()
    for wrong, match in (
        (("dog", tmp_path / "none"), "no pictures in"),
        ((["dog", "cat"], pictures), "one text"),
        (("dog", []), "no picture"),
    ):
        with pytest.raises(InputError, match=match):
            clip.search(*wrong)
    with pytest.raises(InputError, match="a row for each"):
        clip.search("dog", pictures, vectors=kept[:2])


def test_a_long_text_is_cut_and_that_is_said(clip, reference, caplog):
    long = "red " * 40
    found = clip.similarity([long, "dog"], PICTURES)
    assert "1 of 2 texts were cut to the 16 tokens" in caplog.text
    torch.testing.assert_close(found[0], clip.similarity("red " * 14, PICTURES)[0])


def test_saved_folders_open_everywhere(clip, reference, tmp_path):
    clip.save(tmp_path / "saved")
    assert {"preprocessor_config.json", "tokenizer.json", "model.safetensors"} <= {
        path.name for path in (tmp_path / "saved").iterdir()
    }
    again = ch.load(tmp_path / "saved")
    assert torch.equal(again.similarity(TEXTS, PICTURES), clip.similarity(TEXTS, PICTURES))
    there = transformers.CLIPProcessor.from_pretrained(tmp_path / "saved")
    model = transformers.CLIPModel.from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        out = model(**there(text=TEXTS, images=PICTURES, padding=True, return_tensors="pt"))
    torch.testing.assert_close(out.logits_per_text, reference(TEXTS, PICTURES).logits_per_text, rtol=1e-5, atol=1e-4)


def test_a_processor_saved_by_transformers(folder, clip, tmp_path):
    """With everything about pictures inside processor_config.json."""
    transformers.CLIPModel.from_pretrained(folder).save_pretrained(tmp_path)
    transformers.CLIPProcessor.from_pretrained(folder).save_pretrained(tmp_path)
    assert "image_processor" in json.loads((tmp_path / "processor_config.json").read_text())
    assert not (tmp_path / "preprocessor_config.json").exists()
    again = ch.load(tmp_path)
    assert torch.equal(again.similarity(TEXTS, PICTURES), clip.similarity(TEXTS, PICTURES))
    again.save(tmp_path, overwrite=True)
    assert (tmp_path / "preprocessor_config.json").exists() and not (tmp_path / "processor_config.json").exists()


def test_reading_names_the_places(clip):
    picture = clip.read(PICTURES[0], pair="a cat")
    assert set(picture.inputs) == {"pixel_values", "input_ids", "attention_mask"}
    assert isinstance(picture.units[0], MarkUnit) and all(isinstance(unit, PatchUnit) for unit in picture.units[1:])
    assert len(picture.units) == clip.model.vision.embed.positions.length
    text = clip.read("a cat")
    assert all(isinstance(unit, TokenUnit) for unit in text.units) and "pixel_values" not in text.inputs
    for wrong in (("a cat", "a dog"), (PICTURES[0], PICTURES[1])):
        with pytest.raises(InputError, match="one of each"):
            clip.read(wrong[0], pair=wrong[1])
    with pytest.raises(InputError, match="16"):
        clip.read("red " * 40)


def test_what_a_clip_is_not(clip, folder, tmp_path):
    with pytest.raises(InputError, match="compares texts with pictures"):
        as_text(clip)
    for path in folder.iterdir():
        if path.name in ("config.json", "model.safetensors"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    bare = ch.load(tmp_path)
    assert bare.embed(PICTURES).shape == (2, 12)  # pictures as CLIP's are usually prepared
    with pytest.raises(TokenizerError):
        bare.embed("a cat")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "ViTImageProcessor"}))
    with pytest.raises(ConfigError, match="ViTImageProcessor"):
        ch.load(tmp_path)


@pytest.mark.parametrize("cls", [transformers.CLIPVisionModel, transformers.CLIPVisionModelWithProjection])
def test_the_vision_tower_alone(cls, folder, tmp_path):
    tower = cls.from_pretrained(folder).eval()
    tower.save_pretrained(tmp_path)
    CLIPImageProcessorPil.from_pretrained(folder).save_pretrained(tmp_path)
    pipe = ch.load(tmp_path)
    assert isinstance(pipe, PicturePipeline)
    pixels = pipe.image_processor(PICTURES)["pixel_values"]
    with torch.no_grad():
        out = tower(pixels)
    want = out.image_embeds if "image_embeds" in out else out.pooler_output
    torch.testing.assert_close(pipe.embed(PICTURES), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pipe(PICTURES[0]), want[0], rtol=1e-5, atol=1e-5)
    assert len(pipe.read(PICTURES[0]).units) == 10
    with pytest.raises(InputError, match="no labels of its own"):
        pipe.classify(PICTURES[0])
    with pytest.raises(InputError, match="reads pictures"):
        as_text(pipe)
    with pytest.raises(InputError, match="reads no text"):
        pipe.tokenizer  # noqa: B018


def test_a_classifier_of_pictures(folder, tmp_path):
    config = transformers.CLIPConfig.from_pretrained(folder, id2label={0: "cat", 1: "dog", 2: "none"})
    torch.manual_seed(3)
    model = transformers.CLIPForImageClassification(config).eval()
    model.save_pretrained(tmp_path)
    CLIPImageProcessorPil.from_pretrained(folder).save_pretrained(tmp_path)
    pipe = ch.load(tmp_path)
    assert isinstance(pipe, PicturePipeline)
    with torch.no_grad():
        want = model(pipe.image_processor(PICTURES)["pixel_values"]).logits.softmax(-1)
    found = pipe(PICTURES)
    for row, scores in zip(found, want, strict=True):
        assert row[0].label == config.id2label[int(scores.argmax())]
        assert row[0].score == pytest.approx(float(scores.max()), abs=1e-5)
    with pytest.raises(InputError, match="no vectors"):
        pipe.embed(PICTURES)


def test_broken_pictures_are_named(clip, tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"not a picture")
    with pytest.raises(InputError, match=r"bad\.jpg is no picture that can be read"):
        clip.classify(tmp_path / "bad.jpg", labels=["cat", "dog"])
    with pytest.raises(InputError, match="not dict"):
        clip.similarity("a cat", {"a": 1})
    assert clip.embed(Image.new("1", (1, 1))).shape == (12,)
