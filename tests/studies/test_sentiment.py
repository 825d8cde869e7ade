"""The SST-2 pipeline gives what scikit-learn gives on transformers' own vectors, and tells what it measured."""

import csv
import io
import json
import sys

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.pipeline import TextPipeline
from clearhead.studies import sentiment
from clearhead.studies.frozen import default_cache
from tests.studies.small import bert, sentences, table

linear_model = pytest.importorskip("sklearn.linear_model")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return bert(tmp_path_factory.mktemp("study") / "bert")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    return table(place / "train.tsv", sentences(90)), table(place / "test.tsv", sentences(40, seed=1))


def reference(folder, texts):
    """[CLS] and mean vectors, one sentence at a time, by transformers."""
    import transformers

    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = ch.load(folder).tokenizer
    with torch.no_grad():
        states = [model(torch.tensor([tokenizer.encode(text)])).last_hidden_state[0] for text in texts]
    return {"[CLS]": np.stack([s[0].numpy() for s in states]), "mean": np.stack([s.mean(0).numpy() for s in states])}


def test_the_same_as_the_article_by_hand(folder, files):
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    found = sentiment(ch.load(folder, task="features"), *files, sentences=80, folds=4)
    rows, test = sentences(90)[:80], sentences(40, seed=1)
    x, far = reference(folder, [text for text, _ in rows]), reference(folder, [text for text, _ in test])
    y, wanted = np.array([label for _, label in rows]), np.array([label for _, label in test])
    for row in found.rows:
        scores = cross_val_score(linear_model.LogisticRegression(max_iter=1000), x[row.features], y, cv=4)
        assert (row.accuracy, row.std) == pytest.approx((scores.mean(), scores.std()))
        scaled = make_pipeline(StandardScaler(), linear_model.LogisticRegression(max_iter=1000))
        assert row.standardised == pytest.approx(cross_val_score(scaled, x[row.features], y, cv=4).mean())
        fitted = linear_model.LogisticRegression(max_iter=1000).fit(x[row.features], y)
        assert row.test == pytest.approx(fitted.score(far[row.features], wanted))
        assert row.sentences == 80
    assert [row.features for row in found.rows] == ["[CLS]", "mean"]
    assert found.rows[0].accuracy != found.rows[1].accuracy
    commoner = int(y.mean() > 0.5)
    assert found.majority == pytest.approx((y == commoner).mean())
    assert found.majority_test == pytest.approx((wanted == commoner).mean())
    assert found.labels == ["0", "1"] and found.seconds.keys() == {"reading", "regressions"}


def test_vectors_are_kept_and_found_again(folder, files, tmp_path, monkeypatch):
    pipe, heard = ch.load(folder, task="features"), []
    first = sentiment(pipe, *files, cache=tmp_path / "kept", on_progress=lambda *said: heard.append(said))
    assert not first.cached and len(list((tmp_path / "kept").iterdir())) == 2
    assert ("Reading", 0, 90) in heard and ("Reading", 90, 90) in heard and ("Reading", 40, 40) in heard
    monkeypatch.setattr(type(pipe.model), "forward", None)  # nothing is computed again
    again = sentiment(pipe, *files, cache=tmp_path / "kept")
    assert again.cached and again.rows == first.rows
    monkeypatch.undo()
    for file in (tmp_path / "kept").iterdir():
        file.write_bytes(file.read_bytes()[:100])  # a damaged file is made anew
    assert sentiment(pipe, *files, cache=tmp_path / "kept").rows == first.rows
    with torch.no_grad():
        next(pipe.model.stack.layers[3].parameters()).add_(0.5)  # other weights: other vectors
    other = sentiment(pipe, *files, cache=tmp_path / "kept")
    assert not other.cached and len(list((tmp_path / "kept").iterdir())) == 4


def test_the_model_comes_back_as_it_was(folder, files):
    pipe = ch.load(folder, task="features")
    pipe.model.train()
    before = {name: weight.clone() for name, weight in pipe.model.state_dict().items()}
    trained = sentiment(pipe, files[0], folds=3)
    assert pipe.model.training and all((pipe.model.state_dict()[n] == w).all() for n, w in before.items())
    pipe.model.eval()
    assert sentiment(pipe, files[0], folds=3).rows == trained.rows  # read without dropout either way
    assert trained.rows[0].test is None and trained.majority_test is None


def test_as_a_table(folder, files):
    found = sentiment(ch.load(folder, task="features"), files[0], sentences=60)
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [row["features"] for row in rows] == ["[CLS]", "mean"]
    assert float(rows[0]["accuracy"]) == found.rows[0].accuracy
    assert found.to_dict()["rows"][1]["features"] == "mean"


def test_fine_tuning(folder, files, tmp_path):
    settings = ["epochs=4", "optimizer.lr=1e-3", "batch.tokens=128", "data.limit=80"]
    events = []
    pipe = ch.load(folder, task="features")
    found = sentiment(pipe, *files, fine_tune=tmp_path / "run", settings=settings, watchers=[events.append])
    row = found.rows[-1]
    assert row.features == "fine-tuned" and row.sentences == 80 and row.accuracy is None
    assert "fine-tuning" in found.seconds and events[-1]["event"] == "end"
    model = ch.load(tmp_path / "run" / "model")  # what was measured is what was saved
    right = 0
    for text, label in sentences(40, seed=1):
        right += int(model.model(**model.tokenizer(text, return_tensors="pt")).logits.argmax()) == label
    assert row.test == pytest.approx(right / 40)


@pytest.mark.parametrize("name", ["named.tsv", "rows.jsonl"])
def test_other_columns(folder, tmp_path, name):
    rows = sentences(60)
    if name == "named.tsv":
        path, columns = tmp_path / name, {"text": "sentence"}
        table(path, [("label", "sentence"), *((label, text) for text, label in rows)])
    else:
        path, columns = tmp_path / name, None
        path.write_text("\n".join(json.dumps({"text": text, "label": label}) for text, label in rows))
    found = sentiment(ch.load(folder, task="features"), path, columns=columns)
    plain = sentiment(ch.load(folder, task="features"), table(tmp_path / "plain.tsv", rows))
    assert found.rows == plain.rows


def test_what_cannot_be_measured(folder, files, tmp_path):
    pipe = ch.load(folder, task="features")
    with pytest.raises(InputError, match="at least 5 times"):
        sentiment(pipe, files[0], sentences=8)
    with pytest.raises(InputError, match="does not occur in the training data"):
        sentiment(pipe, files[0], table(tmp_path / "odd.tsv", [("the film", 7)]))
    with pytest.raises(InputError, match="loaded from a folder"):
        sentiment(TextPipeline(pipe.model, pipe.tokenizer), files[0], fine_tune=tmp_path / "run")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be kept"):
        sentiment(pipe, files[0], cache=tmp_path / "file" / "below")


def test_without_scikit_learn(folder, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(InputError, match=r"pip install 'clearhead\[train\]'"):
        sentiment(ch.load(folder, task="features"), files[0])


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "clearhead" / "features"
