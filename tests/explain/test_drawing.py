"""How a picture comes about: predicted pictures, words over the picture, noise added, the schedule."""

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead import explain
from clearhead.errors import InputError, TraceError
from clearhead.explain.questions import QUESTIONS
from tests.diffusion.pipelines import pipeline
from tests.diffusion.test_draw import PLAIN, photo

FEW = {"num_inference_steps": 3, "seed": 1}


@pytest.fixture(scope="module")
def sd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sd") / "sd"
    pipeline(folder, 3, unet=PLAIN)
    return ch.load(folder)


def test_the_gallery_holds_predicted_pictures(sd, tmp_path):
    found = explain.drawing_steps(sd, "a red apple", scheduler="ddim", **FEW)
    assert len(found.steps) == 3 and found.picture.shape == (32, 32, 3)
    assert [step.noise for step in found.steps] == sorted((step.noise for step in found.steps), reverse=True)
    predicted = []
    sd.draw("a red apple", scheduler="ddim", on_step=lambda step: predicted.append(step.predicted), **FEW)
    wanted = (sd.decode(predicted[1])[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    assert (found.steps[1].picture == wanted).all()
    assert (
        np.abs(found.steps[-1].picture.astype(int) - found.picture).mean() < 3
    )  # the last one is nearly what is drawn
    assert "▀" in repr(found)
    assert found.save(tmp_path / "steps.html").read_text().startswith("<!DOCTYPE html>")
    assert found.to_dict()["kind"] == "drawing-steps" and found.to_csv().startswith("step,timestep,noise")


def test_words_over_the_picture(sd):
    found = explain.word_maps(sd, "a red apple", **FEW)
    assert found.words == ["<|startoftext|>", "a", "red", "apple", "<|endoftext|>"]
    assert found.maps.shape == (5, 8, 8) and found.layers[0] == "down.0.0" and "middle" in found.layers
    assert np.allclose(found.maps.sum(0) + found.padding, 1, atol=1e-4)
    # one layer, head and step: the very weights of the text, not those without it
    one = explain.word_maps(sd, "a red apple", layers="down.0.0", heads=[1], steps=[2], scheduler="ddim", **FEW)
    name = "down.0.0.cross_attention.weights"
    with ch.trace(sd.unet, name, every=True) as seen:
        sd.draw("a red apple", scheduler="ddim", **FEW)
    weights = seen.calls(name)[2][1, 1].reshape(8, 8, -1).permute(2, 0, 1)
    assert one.layers == ["down.0.0"] and torch.allclose(torch.from_numpy(one.maps), weights[:5], atol=1e-6)
    assert "apple" in repr(found)


def test_noise_is_added_to_a_picture(sd):
    found = explain.forward_process(sd, photo(), steps=4)
    assert [step.timestep for step in found.steps] == [0, 333, 666, 999]
    first = sd.decode(sd.vae.encode(torch.from_numpy(np.array(photo())).permute(2, 0, 1)[None] / 127.5 - 1)
                      .latent_dist.mean * sd.vae.config.scaling_factor)  # fmt: skip
    away = np.abs(found.steps[0].picture - (first[0].permute(1, 2, 0).detach().numpy() * 255)).mean()
    assert away < 20 and found.steps[0].noise < 0.01 and found.steps[-1].noise > 0.99
    assert "noise" in repr(found)


def test_the_schedule(sd):
    found = explain.noise_schedule(sd, 10)
    assert np.allclose(found.signal**2 + found.noise**2, 1, atol=1e-5) and len(found.visited) == 11
    assert (np.diff(found.signal) < 0).all() and "visited" in repr(found)


def test_what_cannot_be_asked(sd):
    with pytest.raises(InputError, match="does not draw"):
        explain.word_maps(ch.load("random-gpt2"), "a")
    with pytest.raises(InputError, match="heads"):
        explain.word_maps(sd, "a", heads=[99], **FEW)
    with pytest.raises(TraceError):
        explain.word_maps(sd, "a", layers="sideways", **FEW)
    with pytest.raises(InputError):
        explain.forward_process(sd, photo(), steps=1)
    for question in QUESTIONS.values():  # those about texts say why they have no answer
        if question.needs_layers:
            assert "word_maps" in str(question.fits(sd))
        else:
            question.fits(sd)
