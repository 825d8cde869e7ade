"""The image processor against the Pillow one of transformers: the same pixels, whatever the picture."""

import json
import random

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from clearhead.errors import ConfigError, InputError
from clearhead.image import ImageProcessor, ImageSettings, load_image_processor
from clearhead.units import MarkUnit, PatchUnit
from tests.image.made import MODES, noise, sizes


def both(tmp_path, **settings):
    CLIPImageProcessorPil(**settings).save_pretrained(tmp_path)
    return load_image_processor(tmp_path), CLIPImageProcessorPil.from_pretrained(tmp_path)


def same(ours, theirs, images):
    got = ours(images, return_tensors="pt")["pixel_values"]
    want = theirs(images, return_tensors="pt")["pixel_values"]
    assert got.dtype == want.dtype and got.shape == want.shape
    assert torch.equal(got, want)


SETTINGS = [
    {},
    {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 24}},
    {"size": {"height": 18, "width": 25}, "do_center_crop": False, "resample": 2},
    {"size": {"shortest_edge": 12, "longest_edge": 90}, "crop_size": {"height": 15, "width": 15}},
    {"do_resize": False, "crop_size": {"height": 21, "width": 22}},
    {"size": {"shortest_edge": 9}, "crop_size": {"height": 14, "width": 9}, "resample": 1, "do_normalize": False},
    {"size": {"shortest_edge": 11}, "do_rescale": False, "crop_size": {"height": 11, "width": 11}},
    {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.1, 0.2, 0.3], "rescale_factor": 1 / 127.5, "resample": 0,
     "size": {"shortest_edge": 8}, "crop_size": {"height": 8, "width": 8}},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_the_same_pixels(number, tmp_path):
    ours, theirs = both(tmp_path, **SETTINGS[number])
    rng = random.Random(number)
    for seed, (width, height) in enumerate(sizes(12, number)):
        same(ours, theirs, noise(width, height, rng.choice(MODES), seed))


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode, tmp_path):
    ours, theirs = both(tmp_path, size={"shortest_edge": 14}, crop_size={"height": 14, "width": 14})
    same(ours, theirs, [noise(31, 19, mode, 1), noise(7, 40, mode, 2)])


def test_a_transparent_palette(tmp_path):
    ours, theirs = both(tmp_path)
    picture = noise(20, 30, "P")
    picture.info["transparency"] = 3
    same(ours, theirs, picture)


def test_arrays_and_tensors(tmp_path):
    ours, theirs = both(tmp_path, size={"shortest_edge": 10}, crop_size={"height": 10, "width": 10})
    colour, clear = np.asarray(noise(21, 17)), np.asarray(noise(21, 17, "RGBA"))
    for array in (colour, np.moveaxis(colour, -1, 0), clear, colour[:, :, :1]):
        same(ours, theirs, array)
        same(ours, theirs, [array, array])
    want = ours(colour)["pixel_values"]
    for again in (torch.from_numpy(colour.copy()), colour / 255.0, (colour / 255).astype(np.float32), colour[None]):
        assert torch.equal(ours(again)["pixel_values"], want)
    grey = ours(colour[:, :, 0])["pixel_values"]
    assert torch.equal(grey, ours(colour[:, :, :1])["pixel_values"])


def test_what_comes_back():
    ours = ImageProcessor(ImageSettings.square(6))
    batch = ours([noise(9, 8), noise(30, 8)])
    assert batch["pixel_values"].shape == batch.pixel_values.shape == (2, 3, 6, 6)
    assert isinstance(ours(noise(9, 8), return_tensors="np")["pixel_values"], np.ndarray)
    assert [array.shape for array in ours(noise(9, 8), return_tensors=None)["pixel_values"]] == [(3, 6, 6)]
    assert ours(noise(9, 9), do_center_crop=False, size=12)["pixel_values"].shape[-2:] == (12, 12)
    for wrong, match in (
        ({"images": []}, "no picture"),
        ({"images": noise(2, 2), "return_tensors": "tf"}, "return_tensors"),
        ({"images": noise(2, 2), "do_centre_crop": True}, "do_center_crop"),
        ({"images": [noise(9, 8), noise(30, 8)], "do_center_crop": False}, "different sizes"),
        ({"images": noise(9, 8, "RGBA"), "do_convert_rgb": False}, "4 channels"),
    ):
        with pytest.raises(InputError, match=match):
            ours(**wrong)


# ---- files


def test_old_and_new_files(tmp_path):
    new = {"size": {"shortest_edge": 30}, "crop_size": {"height": 28, "width": 28}}
    old = {"size": 30, "crop_size": 28, "feature_extractor_type": "CLIPFeatureExtractor", "resample": 3}
    pixels = []
    for number, (name, raw) in enumerate(
        (
            ("preprocessor_config.json", new),
            ("preprocessor_config.json", old),
            ("processor_config.json", {"image_processor": new, "processor_class": "CLIPProcessor"}),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_text(json.dumps(raw))
        pixels.append(load_image_processor(folder)(noise(40, 33))["pixel_values"])
        want = CLIPImageProcessorPil.from_pretrained(folder)(noise(40, 33), return_tensors="pt")["pixel_values"]
        assert torch.equal(pixels[-1], want)
    assert torch.equal(pixels[0], pixels[1]) and torch.equal(pixels[0], pixels[2])


def test_saved_here_opens_there(tmp_path):
    ours, _ = both(tmp_path / "theirs", size={"height": 9, "width": 12}, do_center_crop=False, image_std=[0.5] * 3)
    (tmp_path / "ours").mkdir()
    ours.save(tmp_path / "ours")
    there = CLIPImageProcessorPil.from_pretrained(tmp_path / "ours")
    same(ours, there, noise(20, 30))
    again = load_image_processor(tmp_path / "ours")
    assert again.settings == ours.settings


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        ({"size": "large"}, "size is 'large'"),
        ({"size": {"longest_edge": 3}}, "shortest_edge"),
        ({"size": 0}, "size is 0"),
        ({"crop_size": {"shortest_edge": 8}}, "crop_size"),
        ({"resample": 9}, "resample is 9"),
        ({"image_mean": "grey"}, "image_mean"),
        ({"image_std": [0.0, 1, 1]}, "image_std"),
        ({"do_resize": 1}, "do_resize is 1"),
        ({"do_pad": True}, "do_pad = True"),
        ({"image_processor_type": "BeitImageProcessor"}, "BeitImageProcessor"),
    ],
)
def test_settings_that_cannot_be(raw, match):
    with pytest.raises(ConfigError, match=match):
        ImageSettings.from_dict(raw)


def test_settings_nobody_knows_are_named(tmp_path, caplog):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"sharpen": 2, "processor_class": "CLIPProcessor"}))
    load_image_processor(tmp_path)
    assert "sharpen = 2" in caplog.text and "processor_class" not in caplog.text
    (tmp_path / "preprocessor_config.json").unlink()
    assert load_image_processor(tmp_path, 32).settings == ImageSettings.square(32)
    assert "32 × 32" in caplog.text


# ---- units


def test_patches_lie_where_they_are_in_the_given_picture():
    """A picture with one bright spot: the patch of the prepared picture that is bright is the one that covers it."""
    processor = ImageProcessor(ImageSettings.square(24), patch_size=8)
    picture = np.zeros((60, 90, 3), np.uint8)
    picture[20:40, 35:55] = 255
    units = processor.units(picture)
    assert isinstance(units[0], MarkUnit) and units[0].special and len(units) == 10
    pixels = processor(picture)["pixel_values"][0].mean(0)
    for unit in units[1:]:
        assert isinstance(unit, PatchUnit) and not unit.special
        seen = pixels[unit.row * 8 : unit.row * 8 + 8, unit.column * 8 : unit.column * 8 + 8].mean()
        top, left = round(unit.top), round(unit.left)
        there = picture[top : top + round(unit.height), left : left + round(unit.width)].mean()
        assert (float(seen) > 1.9) == (there == 255)
    assert [(unit.left, unit.top, unit.width) for unit in units[1:3]] == [(15, 0, 20), (35, 0, 20)]
    with pytest.raises(InputError, match="size of a patch"):
        ImageProcessor().units(Image.new("RGB", (3, 3)))
