"""Cosines, ranks and the built-in pairs: the figures are those of numpy and scipy, and the words follow the figures."""

import csv
import json

import numpy as np
import pytest

import clearhead as ch
from clearhead.errors import InputError
from clearhead.explain.finding import Finding
from clearhead.hub import SentenceModules
from clearhead.models.sentence import Normalize, Pooling, SentenceHead
from clearhead.studies import similarity
from clearhead.studies.similarity import (
    BUILT_IN,
    CENTRED,
    OWN,
    SAME_WORDS,
    TRIPLES,
    PairCosines,
    SimilarityStudy,
    auc,
    spearman,
)
from tests.studies.small import bert, table

PAIRS = [
    ("the film was good", "a good story", 4.0),
    ("anna ran in berlin", "peter ran in rome", 3.0),
    ("the town of love", "it was awful and cold", 0.5),
    ("a dull film", "marie ran for long", 1.0),
]


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
    return ch.load(bert(tmp_path_factory.mktemp("study") / "bert"), task="features")


def cosine(a, b):
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_figures(pipe, pooling):
    stats = pytest.importorskip("scipy.stats")
    row = next(r for r in similarity(pipe, PAIRS).rows if r.vectors == {"cls": "[CLS]", "mean": "mean"}[pooling])
    one, two = (pipe.embed([pair[n] for pair in PAIRS], pooling=pooling).numpy() for n in (0, 1))
    cosines = [cosine(a, b) for a, b in zip(one, two, strict=True)]
    assert row.alike == pytest.approx(np.mean(cosines[:2]), abs=1e-5)
    assert row.unlike == pytest.approx(np.mean(cosines[2:]), abs=1e-5)
    assert row.gap == pytest.approx(row.alike - row.unlike)
    assert row.auc == np.mean([high > low for high in cosines[:2] for low in cosines[2:]])
    assert row.spearman == pytest.approx(stats.spearmanr(cosines, [score for *_, score in PAIRS]).statistic)
    every = [*one, *two]
    others = [cosine(every[i], every[j]) for i in range(8) for j in range(i) if i - j != 4]
    assert row.random == pytest.approx(np.mean(others), abs=1e-5)
    assert row.same_words is None


def test_every_way(pipe):
    found = similarity(pipe, PAIRS)
    assert [row.vectors for row in found.rows] == [
        "[CLS]", "mean", "mean, first and last", "mean, embeddings", CENTRED,
    ]  # fmt: skip
    assert len({round(row.alike, 6) for row in found.rows}) == 5  # each is something else
    states = pipe.model(**pipe.tokenizer(PAIRS[0][0], return_tensors="pt"), output_hidden_states=True).hidden_states
    assert len(states) == 6


def test_a_sentence_model_shows_its_own(pipe):
    pipe = ch.pipeline.TextPipeline(pipe.model, pipe.tokenizer, name="own", sentence=SentenceModules(
        SentenceHead(Pooling(("max",)), [Normalize()])))  # fmt: skip
    row = next(r for r in similarity(pipe, PAIRS).rows if r.vectors == OWN)
    one, two = (pipe.embed([pair[n] for pair in PAIRS[:2]]).numpy() for n in (0, 1))
    assert row.alike == pytest.approx(float((one * two).sum(1).mean()), abs=1e-5)
    assert "trained for similarity" in similarity(pipe, PAIRS).conclusion


def test_ranks_with_ties():
    stats = pytest.importorskip("scipy.stats")
    x, y = np.array([1.0, 2, 2, 5, 0]), np.array([3.0, 1, 4, 4, 0])
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert auc(np.array([2.0, 3]), np.array([1.0, 2])) == (1 + 0.5 + 1 + 1) / 4
    assert spearman(x, np.ones(5)) == 0.0


def test_the_built_in_set(pipe):
    assert len(TRIPLES) == 24 and len({text for triple in TRIPLES for text in triple}) == 72
    assert [score for *_, score in BUILT_IN] == [1.0] * 24 + [0.0] * 24
    alike, apart = {pair[:2] for pair in BUILT_IN[:24]}, {pair[:2] for pair in BUILT_IN[24:]}
    assert not alike & apart and not {first for first, _ in SAME_WORDS} - {first for first, _ in alike}

    def shared(a, b):
        a, b = ({word.strip(".,;") for word in text.lower().split()} for text in (a, b))
        return len(a & b) / min(len(a), len(b))

    for first, same, other in TRIPLES:  # the same in other words, other things in the same words
        assert shared(first, other) >= 0.5 > shared(first, same), first
    found = similarity(pipe)
    assert found.built_in and found.pairs == 48 and all(row.same_words is not None for row in found.rows)
    assert found.to_csv().splitlines()[0].startswith("vectors,alike,unlike,gap,auc")


def test_files(pipe, tmp_path):
    path = table(tmp_path / "pairs.tsv", PAIRS)
    assert similarity(pipe, path).rows == similarity(pipe, PAIRS).rows
    with pytest.raises(InputError, match="must be a number"):
        similarity(pipe, table(tmp_path / "words.tsv", [*PAIRS, ("a", "film", "very")]))
    with pytest.raises(InputError, match="the same score"):
        similarity(pipe, [(a, b, 1.0) for a, b, _ in PAIRS])
    with pytest.raises(InputError, match="two pairs"):
        similarity(pipe, PAIRS[:1])
    (tmp_path / "pairs.jsonl").write_text('{"text": "a film", "score": 1}\n')
    with pytest.raises(InputError, match="has no text_pair"):
        similarity(pipe, tmp_path / "pairs.jsonl")


def test_words_follow_figures():
    def said(random, same_words=None):
        rows = [PairCosines(name, 0.9, 0.8, 0.1, 0.7, 0.5, random, same_words) for name in ("[CLS]", "mean")]
        return SimilarityStudy("m", 4, same_words is not None, rows).conclusion

    assert "narrow cone" in said(0.9) and "do not crowd" in said(0.1)
    assert "follow words" in said(0.9, 0.95) and "follow words" not in said(0.9, 0.5)
    assert "trained for similarity" not in said(0.9)


def test_a_study_is_a_finding(pipe, tmp_path):
    """Printed, saved and read like any other."""
    found = similarity(pipe)
    assert isinstance(found, Finding)
    text = repr(found)
    assert "any two" in text and f"{found.rows[0].auc:.2f}" in text and found.conclusion[:40] in text
    rows = list(csv.reader(found.save(tmp_path / "a.csv").open()))
    assert len(rows) == len(found.rows) + 1 and rows[1][0] == found.rows[0].vectors
    assert json.loads(found.save(tmp_path / "a.json").read_text())["kind"] == "similarity-study"
    page = found.save(tmp_path / "a.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "any two" in page and "://" not in page
    assert "any two" in found._repr_html_() and "<html" not in found._repr_html_()
