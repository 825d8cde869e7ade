"""A store with passages written otherwise: found by what they say now, and nothing on disk changes."""

import numpy as np
import pytest

pytest.importorskip("lancedb")

from clearhead.errors import InputError
from clearhead.retrieval import Document, EditedStore, PassageEdit, Store, build
from tests.retrieval.conftest import prose


@pytest.fixture(scope="module")
def store(encoders, tmp_path_factory):
    folder = tmp_path_factory.mktemp("edited") / "store"
    documents = [Document(f"doc {n}", prose(n, 20)) for n in range(12)]
    build(folder, documents, encoder=encoders["one"], chunk_size=8)
    return Store(folder)


def plain(hits):
    return [(hit.document, hit.position, hit.text, round(hit.score, 5)) for hit in hits]


def test_an_edited_passage_is_found_by_what_it_says_now(store):
    words = "a dog ran"
    edited = EditedStore(store, [PassageEdit("doc 3", 0, words)])
    found = edited.search(words, 5)
    assert (found[0].document, found[0].position) == ("doc 3", 0)
    assert (found[0].text + found[0].continuation).strip() == words
    own = store.keys([found[0].text])[0]
    assert found[0].score == pytest.approx(float(own @ store.keys([words])[0]), abs=1e-5)
    assert len(found) == 5 and [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    others = [hit for hit in store.search(words, 99) if (hit.document, hit.position) != ("doc 3", 0)]
    assert plain(edited.search(words, 99)[1:]) == plain(others)
    old = store.chunks("doc 3")[0].text
    assert old not in [hit.text for hit in edited.search(old, 99)]  # what it said is gone


def test_the_store_stays_as_it_is(store):
    before = plain(store.search("the cat sat", 99))
    EditedStore(store, [PassageEdit("doc 1", 1, "a sofa")]).search("a sofa", 3)
    assert plain(store.search("the cat sat", 99)) == before
    assert plain(Store(store.where).search("the cat sat", 99)) == before


def test_what_stands_before_goes_on_with_the_new_words(store):
    edited = EditedStore(store, [PassageEdit("doc 2", 1, "unbelievably a dog")])
    hits = {(hit.document, hit.position): hit for hit in edited.search("the cat", 99)}
    assert hits["doc 2", 0].continuation.strip() == "unbelievably a dog"
    assert hits["doc 2", 1].continuation == ""


def test_vectors_come_with_hits_where_they_are_asked_for(store):
    edited = EditedStore(store, [PassageEdit("doc 2", 0, "unbelievably a dog")])
    for place in (store, edited):
        assert place.search("the cat", 3)[0].vector is None
        hits = place.search("the cat", 99, vectors=True)
        query = place.keys(["the cat"])[0]
        for hit in hits:
            np.testing.assert_allclose(hit.vector @ query, hit.score, atol=1e-5)
        assert len(place) == len(hits)
        drawn = place.sample(5, seed=2, vectors=True)
        assert len({(hit.document, hit.position) for hit in drawn}) == 5 and drawn[0].vector is not None
    assert [hit.text for hit in store.sample(5, 2)] == [hit.text for hit in store.sample(5, 2)]
    assert [hit.text for hit in store.sample(5, 2)] != [hit.text for hit in store.sample(5, 3)]
    assert len(store.sample(10_000)) == len(store)
    assert any(hit.text == "unbelievably a dog" for hit in edited.sample(10_000))


def test_an_edit_of_nothing_is_refused(store):
    with pytest.raises(InputError, match=r"no passage 0 of a document doc 99.*doc 9"):
        EditedStore(store, [PassageEdit("doc 99", 0, "a dog")])
    with pytest.raises(InputError, match="no passage 77 of a document doc 1 "):
        EditedStore(store, [PassageEdit("doc 1", 77, "a dog")])
    with pytest.raises(InputError, match="has to say something"):
        EditedStore(store, [PassageEdit("doc 1", 0, "  ")])
