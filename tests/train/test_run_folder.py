"""A run's folder as a model: the one it ended with, or the newest checkpoint of one that was stopped."""

import logging
import shutil

import pytest
import torch
from safetensors.torch import load_file

import clearhead as ch
from clearhead.errors import CheckpointError
from clearhead.train import train
from tests.train.runs import recipe
from tests.train.test_run import case, stopping_at

TEXT = "the cat sat near the old house ."


def test_of_a_run_that_ended_its_model(tmp_path):
    result = train(recipe(tmp_path))
    pipe, plain = ch.load(result.folder), ch.load(result.model)
    assert pipe.name == str(result.model)
    assert all(torch.equal(a, b) for a, b in zip(pipe.model.parameters(), plain.model.parameters(), strict=True))
    assert pipe.generate(TEXT, max_new_tokens=3) == plain.generate(TEXT, max_new_tokens=3)
    again = train(recipe(tmp_path, out=str(tmp_path / "next"), model={"start": str(result.folder)}, tokenizer={}))
    assert again.finished


@pytest.mark.parametrize("name", ["causal-lm", "seq2seq", "denoising", "span-corruption", "classification",
                                  "sentence-order", "sentence-contrastive", "permutation-lm"])  # fmt: skip
def test_of_a_run_that_was_stopped_its_newest_checkpoint(tmp_path, name, caplog):
    """The checkpoint of the last step holds the weights of the model that the run ends with."""
    asked = case(tmp_path, name, "run", evaluation={}, data__valid=None, data__test=None)
    asked["data"] = {"train": asked["data"]["train"]}
    train(asked)
    final = ch.load(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    with caplog.at_level(logging.WARNING):
        pipe = ch.load(tmp_path / "run")
    assert "has not ended: taking its newest checkpoint, step-000000003" in caplog.text
    assert pipe.model.task == final.model.task and pipe.model.config == final.model.config
    theirs = dict(final.model.named_parameters())
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in pipe.model.named_parameters())
    assert pipe.tokenizer(TEXT)["input_ids"] == final.tokenizer(TEXT)["input_ids"]


def test_the_best_weights_so_far_and_a_checkpoint_by_its_own_name(tmp_path):
    asked = recipe(tmp_path, ema=0.9, evaluation={"every": 1}, checkpoint={"every": 1})
    train(asked, watchers=[stopping_at(2)])
    newest = tmp_path / "run" / "checkpoints" / "step-000000002"
    best, last = ch.load(newest).model, load_file(newest / "weights.safetensors")
    averages = load_file(newest / "ema.safetensors")
    assert all(torch.equal(tensor, averages[name]) for name, tensor in best.named_parameters())  # which were measured
    assert not all(torch.equal(tensor, last[name]) for name, tensor in best.named_parameters())
    (newest / "best.safetensors").unlink()
    assert all(torch.equal(tensor, averages[name]) for name, tensor in ch.load(newest).model.named_parameters())
    (newest / "ema.safetensors").unlink()
    assert all(torch.equal(tensor, last[name]) for name, tensor in ch.load(newest).model.named_parameters())


def test_what_is_no_model_yet_says_so(tmp_path):
    asked = recipe(tmp_path, lora={"rank": 2}, checkpoint={"every": 1})
    train(asked, watchers=[stopping_at(2)])
    with pytest.raises(CheckpointError, match=r"LoRA adapter apart.*same training command"):
        ch.load(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        ch.load(tmp_path / "run")
