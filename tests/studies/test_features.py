"""The six choices of features are the published ones, and names are counted as the tagging objective counts them."""

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.studies import features
from clearhead.studies.features import MIXED, judged
from clearhead.studies.learned_mix import learned_mix
from clearhead.studies.probe import fitted, logistic_regression
from clearhead.studies.word_features import CHOICES, word_features
from clearhead.train.data.sources import open_source
from tests.studies.small import NAMES, PLACES, bert, elmo, tagged

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return bert(tmp_path_factory.mktemp("study") / "bert")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    return tagged(place / "train.conll", 60), tagged(place / "test.annotated", 25, seed=1)


def by_hand(folder, path):
    """The six features of every word, one sentence at a time, by transformers."""
    import transformers

    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = ch.load(folder).tokenizer
    rows = {name: [] for name in CHOICES}
    tags = []
    for record in open_source(path, format="conll").records():
        ids, places = [tokenizer.cls_token_id], []
        for word in record["tokens"]:
            places.append(len(ids))
            ids += tokenizer.encode(word, add_special_tokens=False)
        with torch.no_grad():
            out = model(torch.tensor([[*ids, tokenizer.sep_token_id]]), output_hidden_states=True)
        embedding, *layers = (state[0, places].numpy() for state in out.hidden_states)
        rows["embeddings"].append(embedding)
        rows["second to last"].append(layers[-2])
        rows["last"].append(layers[-1])
        rows["sum of last four"].append(sum(layers[-4:]))
        rows["last four, joined"].append(np.concatenate(layers[-4:], axis=1))
        rows["sum of all"].append(sum(layers))
        tags += record["tags"]
    return {name: np.concatenate(found) for name, found in rows.items()}, tags


def test_the_six_choices(folder, files):
    pipe = ch.load(folder, task="features")
    found = features(pipe, *files, strength=1.0)
    (x, tags), (far, wanted) = (by_hand(folder, path) for path in files)
    assert [row.features for row in found.rows] == list(CHOICES)
    for row in found.rows:
        probe = fitted(logistic_regression(True, 1.0, 200), x[row.features], np.array(tags))
        guesses = probe.predict(far[row.features])
        assert row.accuracy == pytest.approx(np.mean(guesses == np.array(wanted)), abs=0.01)
        assert row.width == x[row.features].shape[1]
    assert found.rows[0].f1 > 0.5  # the names are words of their own
    assert found.rows[4].width == 4 * 32
    assert found.train_words == len(tags) and found.test_words == len(wanted)
    assert found.outside == pytest.approx(np.mean(np.array(wanted) == "O"))
    assert found.tags[0] == "O" and found.models[0].layers == 5


def test_vectors_of_words(folder, files):
    """What is kept of each word is what transformers has there."""
    pipe = ch.load(folder, task="features")
    sentences = [record["tokens"] for record in open_source(files[1], format="conll").records()]
    kept = word_features(pipe, {"test": sentences}).kept["test"]
    expected, _ = by_hand(folder, files[1])
    for name, choose in CHOICES.items():
        assert np.allclose(choose(kept), expected[name], atol=1e-4), name


def test_a_word_that_a_model_does_not_see_has_zeros(folder):
    pipe = ch.load(folder, task="features")
    kept = word_features(pipe, {"all": [["the", "\u200b", "film"], ["love"] * 60]}).kept["all"]["-1"]
    assert kept.shape == (63, 32) and not kept[1].any() and kept[0].any() and kept[2:].any(-1).all()


def test_names_are_judged_whole():
    labels = ["O", "B-x", "I-x"]
    wanted = [np.array([0, 1, 2, 0]), np.array([1, 0])]
    told = judged(labels, np.array([0, 1, 0, 0, 1, 0]), wanted)  # one cut short, one right
    assert (told["precision"], told["recall"], told["f1"]) == (0.5, 0.5, 0.5)
    assert told["accuracy"] == pytest.approx(5 / 6)
    crossing = judged(labels, np.array([0, 1, 2, 0, 1, 0]), wanted)
    assert crossing["f1"] == 1.0
    assert judged(labels, np.zeros(6, int), wanted)["f1"] == 0.0


def test_kept_on_disk(folder, files, tmp_path, monkeypatch):
    pipe = ch.load(folder, task="features")
    first = features(pipe, *files, cache=tmp_path, limit=30)
    monkeypatch.setattr(type(pipe.model), "forward", None)
    again = features(pipe, *files, cache=tmp_path, limit=30)
    assert again.models[0].cached and not first.models[0].cached and first.train_words < 300
    assert [row.f1 for row in again.rows] == [row.f1 for row in first.rows]


def test_what_cannot_be_compared(folder, files, tmp_path):
    with pytest.raises(InputError, match="four layers"):
        shallow = bert(tmp_path / "shallow")
        pipe = ch.load(shallow, task="features")
        pipe.model.stack.layers = pipe.model.stack.layers[:3]
        features(pipe, *files)
    same = tmp_path / "same.conll"
    same.write_text("\n".join(f"{word}\tO" for word in [*NAMES, *PLACES]) + "\n")
    with pytest.raises(InputError, match="the same tag"):
        features(ch.load(folder, task="features"), same, same)


def test_several_models_in_one_table(folder, files, tmp_path):
    """Of ELMo: each layer of each word as embed_words gives it, their mean, all of them, and a mix that is learned."""
    table = tmp_path / "vectors.txt"
    table.write_text("".join(f"{word} {n} {n % 3} 1\n" for n, word in enumerate([*NAMES, *PLACES, "the"])))
    pipes = [ch.load(folder, task="features"), ch.load(elmo(tmp_path / "elmo")), ch.load(table)]
    found = features(pipes, *files, strength=1.0)
    own = [row for row in found.rows if row.model == str(tmp_path / "elmo")]
    assert [row.features for row in own] == ["words alone", "layer 1", "layer 2", "mean of all", "all, joined", MIXED]
    assert [row.width for row in own] == [8, 16, 16, 16, 40, 16]
    assert len(found.rows) == 6 + 6 + 1 and [model.layers for model in found.models] == [5, 2, 0]
    assert (found.rows[-1].features, found.rows[-1].width) == ("word vectors", 3)
    kept = word_features(pipes[2], {"all": [["Anna", "peter", "x"]]}).kept["all"]["words"]
    assert kept.tolist() == [[0, 0, 1], [1, 1, 1], [0, 0, 0]]
    sentences = [record["tokens"] for record in open_source(files[0], format="conll").records()]
    vectors = [pipes[1].embed_words([words])[0] for words in sentences]
    x = torch.cat([layers[1] for layers in vectors]).numpy()
    tags = [tag for record in open_source(files[0], format="conll").records() for tag in record["tags"]]
    probe = fitted(logistic_regression(True, 1.0, 200), x, np.array(tags))
    far = list(open_source(files[1], format="conll").records())
    guesses = probe.predict(torch.cat([pipes[1].embed_words([r["tokens"]])[0, 1] for r in far]).numpy())
    right = np.mean(guesses == np.array([tag for r in far for tag in r["tags"]]))
    assert own[1].accuracy == pytest.approx(right, abs=0.01)
    shares = found.models[1].shares
    assert len(shares) == 3 and sum(shares) == pytest.approx(1, abs=1e-5) and not found.models[0].shares


def test_a_mix_finds_the_layer_that_knows():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 3000)
    layers = [draw.normal(size=(3000, 8)) for _ in range(3)]
    layers[1][:, :3] += 3 * np.eye(3)[labels]
    shares = learned_mix(layers, labels)
    assert shares.argmax() == 1 and shares[1] > 0.5
    assert np.array_equal(shares, learned_mix(layers, labels))
