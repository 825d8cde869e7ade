"""The six choices of features are the published ones, and names are counted as the tagging objective counts them."""

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.studies import features
from clearhead.studies.features import CHOICES, judged
from clearhead.studies.probe import fitted, logistic_regression
from clearhead.train.data.sources import open_source
from clearhead.train.objectives.tagging import Tagging
from tests.studies.small import NAMES, PLACES, bert, tagged

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
    assert found.tags[0] == "O" and found.layers == 5


def test_vectors_of_words(folder, files):
    """What is kept of each word is what transformers has there."""
    from clearhead.studies.features import _examples, _keep, _source
    from clearhead.studies.frozen import frozen

    pipe = ch.load(folder, task="features")
    objective = Tagging(pipe.tokenizer, 40)
    objective.learn_labels(_source(files[0]).records())
    kept = frozen(pipe, objective, _examples(objective, _source(files[1]), None), _keep, "words")
    expected, _ = by_hand(folder, files[1])
    for name, choose in CHOICES.items():
        assert np.allclose(choose(kept), expected[name], atol=1e-4), name


def test_names_are_judged_whole(folder):
    objective = Tagging(ch.load(folder).tokenizer, 40, labels=["O", "B-x", "I-x"])
    wanted = [np.array([0, 1, 2, 0]), np.array([1, 0])]
    told = judged(objective, np.array([0, 1, 0, 0, 1, 0]), wanted)  # one cut short, one right
    assert (told["precision"], told["recall"], told["f1"]) == (0.5, 0.5, 0.5)
    assert told["accuracy"] == pytest.approx(5 / 6)
    crossing = judged(objective, np.array([0, 1, 2, 0, 1, 0]), wanted)
    assert crossing["f1"] == 1.0
    assert judged(objective, np.zeros(6, int), wanted)["f1"] == 0.0


def test_kept_on_disk(folder, files, tmp_path, monkeypatch):
    pipe = ch.load(folder, task="features")
    first = features(pipe, *files, cache=tmp_path, limit=30)
    monkeypatch.setattr(type(pipe.model), "forward", None)
    again = features(pipe, *files, cache=tmp_path, limit=30)
    assert again.cached and not first.cached and first.train_words < 300
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
