"""ELMo's two language models: what each direction guesses, sentences as they come, learning, stopping and going on."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import clearhead as ch
from clearhead.errors import ClearheadError, ConfigError, InputError
from clearhead.models import family
from clearhead.text import train_tokenizer
from clearhead.text.characters import CharacterCodec
from clearhead.train import evaluate, fit, train
from clearhead.train.objectives.bidirectional import BidirectionalLM

TEXTS = [f"the {a} {b} the {c} ." for a in ("cat", "dog") for b in ("sees", "likes") for c in ("mat", "log", "cat")]
SIZES = {
    "lstm_size": 12, "projection_size": 6, "num_hidden_layers": 2, "filters": [[1, 4], [2, 6]], "character_size": 3,
    "cell_clip": 3.0, "proj_clip": 3.0, "use_skip_connections": True, "num_highways": 1,
}  # fmt: skip


@pytest.fixture
def codec():
    return CharacterCodec.train(TEXTS, 20)


def model_of(codec, **more):
    torch.manual_seed(0)
    elmo = family("elmo")
    return elmo.make(elmo.config(**SIZES, vocab_size=len(codec), max_characters=50, **more), "bidirectional-lm")


def test_sentences_are_examples(codec):
    objective = BidirectionalLM(codec, 6)
    found = list(objective.encode({"text": "The cat ran. the dog sees the cat and the mat"}))
    assert [len(example["words"]) for example in found] == [6, 6, 6]  # the second is cut
    assert found[0]["words"].tolist() == codec.word_ids(["The", "cat", "ran", "."]).tolist()
    assert bytes(found[0]["characters"].astype(np.uint8)) == b"Thecatran." and found[0]["lengths"].tolist() == [
        3,
        3,
        3,
        1,
    ]
    assert list(objective.encode({"text": "  \n"})) == []


def test_a_batch_reads_what_the_codec_reads(codec):
    objective = BidirectionalLM(codec, 10)
    examples = [example for text in TEXTS[:2] for example in objective.encode({"text": text})]
    examples[1:1] = objective.encode({"text": "the cat"})
    batch = objective.collate(examples)
    sentences = [TEXTS[0].split(), ["the", "cat"], TEXTS[1].split()]
    assert torch.equal(batch.inputs["character_ids"].long(), codec(sentences)["character_ids"])
    assert batch.inputs["labels"][1].tolist() == [*codec.word_ids(["the", "cat"]).tolist(), *[-100] * 4]
    assert batch.counts == {"forward": 7 + 3 + 7, "backward": 7 + 3 + 7} and batch.units == 8 + 4 + 8


@torch.no_grad()
def test_each_direction_guesses_its_next_word(codec):
    """The losses by hand, sentence by sentence, from the states of the last layer."""
    objective, model = BidirectionalLM(codec, 10), model_of(codec)
    sentences = [TEXTS[0].split(), ["the", "cat"]]
    batch = objective.collate([objective._example(words) for words in sentences])
    losses = objective.losses(model, batch)
    output = model.head.words.output
    total = {"forward": 0.0, "backward": 0.0}
    for words in sentences:
        states = model(codec([words])["character_ids"], output_hidden_states=True).hidden_states[-1][0]
        ids = torch.from_numpy(codec.word_ids(words))
        total["forward"] += F.cross_entropy(output(states[:-1, :6]), ids[1:], reduction="sum").item()
        total["backward"] += F.cross_entropy(output(states[1:, 6:]), ids[:-1], reduction="sum").item()
    for name in total:
        assert float(losses[name]) == pytest.approx(total[name] / batch.counts[name], rel=1e-5)
    report = objective.report(objective.measure(model, batch))
    assert report["forward_perplexity"] == pytest.approx(math.exp(total["forward"] / 10), rel=1e-4)
    assert report["loss"] == pytest.approx((total["forward"] + total["backward"]) / 20, rel=1e-5)
    assert next(iter(report)) == "loss"


def test_a_state_knows_nothing_of_the_word_it_guesses(codec):
    """Another third word changes no forward score before it, and no backward score after it."""
    model = model_of(codec)
    ids = codec([["the", "cat", "sees", "the"], ["the", "cat", "likes", "the"]])["character_ids"]
    with torch.no_grad():
        out = model(ids)
    forward = (out.logits[0] - out.logits[1]).abs().amax(-1) > 1e-6
    backward = (out.backward_logits[0] - out.backward_logits[1]).abs().amax(-1) > 1e-6
    assert forward.tolist() == [False] * 3 + [True] * 3
    assert backward.tolist() == [True] * 4 + [False] * 2


def test_chunks_of_the_loss_are_the_loss(codec):
    objective, model = BidirectionalLM(codec, 10), model_of(codec)
    batch = objective.collate([objective._example(text.split()) for text in TEXTS])
    model.train()
    whole = objective.losses(model, batch)
    gradients = torch.autograd.grad(sum(whole.values()), list(model.parameters()))
    model.head.words.chunk = 7
    parts = objective.losses(model, batch)
    for name, loss in whole.items():
        torch.testing.assert_close(parts[name], loss)
    for a, b in zip(torch.autograd.grad(sum(parts.values()), list(model.parameters())), gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_it_learns(codec):
    objective, model = BidirectionalLM(codec, 10), model_of(codec)
    records = [{"text": text} for text in TEXTS]
    result = fit(model, objective, records, valid=records, steps=60, lr=2e-2)
    assert result.losses[-1] < 1.2 < 2.2 < result.losses[0]
    assert result.metrics["forward_perplexity"] < 3 and result.metrics["backward_perplexity"] < 3


def recipe(folder, **more) -> dict:
    text = folder / "text.txt"
    text.write_text("\n".join(TEXTS * 3))
    return {
        "objective": "bidirectional-lm",
        "out": str(folder / "run"),
        "data": {"train": str(text), "documents": "lines", "validation_fraction": 0.2},
        "tokenizer": {"kind": "words", "vocab_size": 20},
        "model": {"family": "elmo", "config": SIZES | {"dropout": 0.2}},
        "batch": {"tokens": 40, "length": 10},
        "steps": 8,
        "log_every": 1,
    } | more


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = train(recipe(tmp_path / "whole"))

    def stop(event):
        if event["event"] == "step" and event["step"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(recipe(tmp_path / "cut", checkpoint={"every": 2}), watchers=[stop])
    cut = train(recipe(tmp_path / "cut", checkpoint={"every": 2}))
    weights = [load_file(run.model / "model.safetensors") for run in (whole, cut)]
    assert "softmax/W" in weights[0]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(recipe(tmp_path_factory.mktemp("run")))


def test_what_was_trained_is_a_model(run, tmp_path):
    elmo = ch.load(run.folder)
    assert elmo.model.task == "bidirectional-lm" and len(elmo.codec) == 11
    vectors = elmo.embed_words([["the", "cat"]])
    elmo.save(tmp_path / "again")
    assert torch.equal(ch.load(tmp_path / "again").embed_words([["the", "cat"]]), vectors)
    elmo.save(tmp_path / "published", format="elmo")
    assert sorted(p.name for p in (tmp_path / "published").iterdir()) == ["options.json", "weights.hdf5"]
    published = ch.load(tmp_path / "published")
    assert published.model.task == "features" and torch.equal(published.embed_words([["the", "cat"]]), vectors)
    found = evaluate(run.folder, [{"text": "the cat sees the mat ."}])
    assert found.metrics["perplexity"] > 1 and found.objective == "bidirectional-lm"


def test_going_on_with_a_trained_one(run, tmp_path):
    said = recipe(tmp_path, model={"start": str(run.model), "config": {"dropout": 0.0}}, tokenizer={}, steps=2)
    assert train(said).finished
    assert ch.load(tmp_path / "run").codec.vocabulary == ch.load(run.folder).codec.vocabulary


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"tokenizer": {"kind": "bpe"}}, ConfigError, "bpe, which bidirectional-lm does not read. It reads words"),
        ({"tokenizer": {"kind": "words", "lowercase": True}}, InputError, "kept as they are written"),
        ({"batch": {"tokens": 40, "length": 2}}, InputError, "at least 3"),
        ({"evaluation": {"sample": "the"}}, InputError, "writes nothing"),
        ({"model": {"family": "gpt2"}}, ClearheadError, "bidirectional-lm"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_written(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        train(recipe(tmp_path, **changes))
    assert not (tmp_path / "run").exists()


def test_words_of_another_length(tmp_path):
    train(recipe(tmp_path, model={"family": "elmo", "config": SIZES | {"max_characters": 8}}, steps=1))
    elmo = ch.load(tmp_path / "run")
    assert elmo.codec.max_characters == 8 and elmo.embed_words([["the", "Constantinople"]]).shape == (1, 3, 2, 12)
    with pytest.raises(InputError, match="needs a CharacterCodec"):
        BidirectionalLM(train_tokenizer(TEXTS, "bpe", 260, show_progress=False), 10)
    with pytest.raises(InputError, match="without the softmax"):
        BidirectionalLM(CharacterCodec(), 10)
