"""An adapter's folder as a model: its base is found, and the adapter added to its weights."""

import json
import shutil

import pytest
import torch

import clearhead as ch
from clearhead.errors import CheckpointError, InputError
from clearhead.hub.adapter import load_adapter
from clearhead.nn.lora import merge
from clearhead.train import train
from tests.train.test_run import case

TEXT = "the cat sat near the old house ."


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A language model and a classifier, each learnt as an adapter of a model that was there before."""
    folder = tmp_path_factory.mktemp("adapters")
    starts = {"causal-lm": ("causal-lm", "gpt2"), "classification": ("masked-lm", "bert")}
    for name, (objective, family) in starts.items():
        words = {"kind": "wordpiece", "vocab_size": 160} if family == "bert" else {"kind": "bpe", "vocab_size": 420}
        start = train(case(folder, objective, f"{name}-base", family, tokenizer=words)).model
        learns = {"lora": {"rank": 2}, "optimizer__lr": 0.05, "model": {"start": str(start)}, "tokenizer": {}}
        train(case(folder, name, name, **learns))
    return folder


def edited(source, target, **changes):
    shutil.copytree(source, target)
    path = target / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return target


@pytest.mark.parametrize("name", ["causal-lm", "classification"])
def test_an_adapter_is_the_model_that_it_was_merged_into(runs, name, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)  # the base is found from anywhere
    pipe, merged = ch.load(runs / name / "adapter"), ch.load(runs / name / "model")
    assert not caplog.records  # the base has no such head, and the adapter brings it
    assert (pipe.model.task, pipe.name) == (merged.model.task, str(runs / name / "adapter"))
    assert pipe.model.config.id2label == merged.model.config.id2label
    inputs = merged.tokenizer(TEXT, return_tensors="pt")
    assert torch.equal(pipe.tokenizer(TEXT, return_tensors="pt")["input_ids"], inputs["input_ids"])
    with torch.no_grad():
        ours, theirs = pipe.model(**inputs).logits, merged.model(**inputs).logits
        before = ch.load(runs / f"{name}-base").model
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert any(not torch.equal(p, before.state_dict().get(n, p)) for n, p in pipe.model.named_parameters())


def test_of_pefts_own_folders_the_shapes_say_how_many_labels(runs, tmp_path):
    bare = edited(runs / "classification" / "adapter", tmp_path / "bare")
    (bare / "config.json").unlink()  # PEFT writes none
    pipe = ch.load(bare)
    assert pipe.model.task == "sequence-classification" and len(pipe.model.config.id2label) == 3
    base = ch.load(runs / "causal-lm-base").model
    again = ch.load(edited(runs / "causal-lm" / "adapter", tmp_path / "words")).model
    by_hand = merge(load_adapter(base, runs / "causal-lm" / "adapter"))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), by_hand.parameters(), strict=True))


def test_a_base_that_is_not_there_is_told(runs, tmp_path):
    adapter = runs / "causal-lm" / "adapter"
    with pytest.raises(
        CheckpointError, match=r"is an adapter for the model ./gone, and that cannot be had: There is no"
    ):
        ch.load(edited(adapter, tmp_path / "gone", base_model_name_or_path="./gone"))
    with pytest.raises(CheckpointError, match="does not say which model it is for"):
        ch.load(edited(adapter, tmp_path / "none", base_model_name_or_path=None))
    with pytest.raises(InputError, match=r"is an adapter, and training starts from a whole model"):
        train(
            case(
                tmp_path,
                "causal-lm",
                "run",
                model={"start": str(adapter)},
                tokenizer={"start": str(runs / "causal-lm")},
            )
        )
