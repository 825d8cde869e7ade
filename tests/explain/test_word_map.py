"""Maps and neighbours of words: the numbers are those of the table, and PCA is scikit-learn's."""

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import neighbours, word_map
from clearhead.explain.questions import QUESTIONS
from clearhead.explain.word_map import principal_components
from clearhead.pipeline.vector_files import pipeline_of
from clearhead.text.word_vectors import Words, token_words
from tests.tiny import tiny_pipeline

WORDS = ["the", "king", "queen", "man", "woman", "e-mail"]


@pytest.fixture(scope="module")
def vectors():
    table = torch.randn(len(WORDS), 7, generator=torch.Generator().manual_seed(3))
    return pipeline_of(Words.of(WORDS), table, "own")


@pytest.mark.parametrize("shape", [(9, 5), (3, 12), (6, 1), (2, 4)])
def test_principal_components_are_those_of_scikit_learn(shape):
    sklearn = pytest.importorskip("sklearn.decomposition")
    table = np.random.default_rng(0).standard_normal(shape).astype(np.float32) + 3
    places, explained = principal_components(table)
    count = min(2, *shape)
    reference = sklearn.PCA(count).fit(table)
    assert np.allclose(np.abs(places[:, :count]), np.abs(reference.transform(table)), atol=1e-5)
    assert np.allclose(explained[:count], reference.explained_variance_ratio_, atol=1e-6)
    assert (places[np.abs(places).argmax(0), [0, 1]] >= 0).all()


def test_a_map(vectors):
    found = word_map(vectors, "man -> woman, king → queen e-mail king")
    assert found.words == ["man", "woman", "king", "queen", "e-mail"] and found.rows == [3, 4, 1, 2, 5]
    assert found.arrows == [[0, 1], [2, 3]] and (found.count, found.width) == (6, 7)
    assert np.allclose(found.cosines, vectors.cosines(found.words)) and np.allclose(found.places.mean(0), 0)
    assert np.array_equal(found.vectors, vectors.vectors(found.words))
    assert found.odd_one_out == vectors.odd_one_out(found.words)
    assert word_map(vectors, ["man", "woman"]).odd_one_out is None
    rows = list(found.table())
    assert rows[0][:4] == ["word", "row", "x", "y"] and len(rows) == 6 and len(rows[1]) == 9


def test_a_word_is_also_found_in_lower_case(vectors):
    found = word_map(vectors, "King -> queen, king -> Man")
    assert found.words == ["king", "queen", "man"] and found.arrows == [[0, 1], [0, 2]]
    assert neighbours(vectors, "King").to_dict() == neighbours(vectors, "king").to_dict() | {"asked": "King"}
    cased = pipeline_of(Words.of(["King", "king"]), torch.eye(2))
    assert word_map(cased, "King king").words == ["King", "king"]


def test_the_same_vector_twice_is_one_place():
    same = pipeline_of(Words.of("ab"), torch.ones(2, 3))
    found = word_map(same, "a b")
    assert not found.places.any() and found.explained == [0, 0]


def test_wrong_maps(vectors):
    for words, said in (
        ("king", "two words or more"), ("", "two words"), ("king kong", "no word “kong”"), ("-> king queen", "arrow"),
        ("king queen ->", "arrow"), ("king -> -> queen", "arrow"), (["king"] * 3, "two words"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            word_map(vectors, words)
    many = pipeline_of(Words.of(map(str, range(300))), torch.randn(300, 3))
    with pytest.raises(InputError, match="200 at most"):
        word_map(many, map(str, range(300)))


def test_neighbours(vectors):
    found = neighbours(vectors, " king -  man + woman ", k=2)
    assert found.asked == "king - man + woman"
    assert [(one.word, one.sign, one.row) for one in found.terms] == [("king", 1, 1), ("man", -1, 3), ("woman", 1, 4)]
    assert [(one.word, one.cosine) for one in found.nearest] == vectors.analogy("king - man + woman", 2)
    assert list(found.table())[1][:2] == [1, found.nearest[0].word]


def test_the_words_of_a_sum_lie_in_its_plane(vectors):
    found = neighbours(vectors, "king - man + woman", k=2)
    king, man, woman, *near, led = found.places
    assert sum(found.explained) == pytest.approx(1) and len(near) == 2
    assert np.allclose(king - man + woman, led)
    rows = vectors.vectors(["king", "man"])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.linalg.norm(king - man) == pytest.approx(np.linalg.norm(rows[0] - rows[1]), rel=1e-5)
    alone = neighbours(vectors, "king", k=3)
    assert alone.places.shape == (5, 2) and np.allclose(alone.places[0], alone.places[-1])


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_the_table_of_a_text_model(name):
    pipe = tiny_pipeline(name)
    words = token_words(pipe.tokenizer)
    known = [n for n, word in enumerate(words) if word.strip("#").isalpha()][2:5]
    found = word_map(pipe, [words[n] for n in known])
    table = pipe.model.token_tables()[-1].weight.detach()[known]
    assert found.rows == known and np.allclose(
        found.cosines, torch.nn.functional.cosine_similarity(table[:, None], table[None], dim=-1), atol=1e-6
    )


def test_a_table_answers_what_it_can(vectors):
    fits = {name for name, one in QUESTIONS.items() if one.fits(vectors) is None}
    assert fits == {"neighbours", "word-map", "parameters"}
    assert QUESTIONS["neighbours"].ask(vectors, "king", k="2").to_dict() == neighbours(vectors, "king", 2).to_dict()
    assert QUESTIONS["word-map"].ask(vectors, "king man").to_dict() == word_map(vectors, "king man").to_dict()
    assert "no table of word vectors" in QUESTIONS["word-map"].fits(tiny_pipeline("gpt2"))
    assert "table of word vectors" in QUESTIONS["attention"].fits(vectors)
    assert QUESTIONS["parameters"].ask(vectors, "").total == 42
