"""A store: what is put in comes out, best first; documents come, change and go; what does not fit is refused."""

import math
import sys

import numpy as np
import pytest
import torch

import clearhead as ch
from clearhead.errors import ClearheadError, InputError, StoreError
from clearhead.retrieval import Document, Store, build
from clearhead.retrieval.documents import cut
from clearhead.retrieval.encoder import Encoder
from tests.retrieval.conftest import prose
from tests.tiny import tokenizer

SIZE = 8


def corpus(count=6, words=30):
    return [Document(f"doc {n}", prose(n, words + n), f"file {n}") for n in range(count)]


def made(folder, encoder, documents, **options):
    build(folder, documents, encoder=encoder, **{"chunk_size": SIZE} | options)
    return Store(folder)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, encoders):
    """A store that tests only read."""
    return made(tmp_path_factory.mktemp("shared") / "store", encoders["one"], corpus())


# ---- chunks and vectors


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("text", [prose(3, 41), "a  dog\n\tsat … 我喜欢猫!\x07 ran", "cat", "x" * 1000])
def test_chunks_joined_are_the_text(kind, text):
    own = tokenizer(kind)
    chunks = list(cut(text, own, 5))
    assert "".join(chunk.text for chunk in chunks) == text
    assert [token for chunk in chunks for token in chunk.tokens] == own(text, add_special_tokens=False)["input_ids"]
    assert {len(chunk.tokens) for chunk in chunks[:-1]} <= {5} and 1 <= len(chunks[-1].tokens) <= 5


def test_an_encoder_gives_what_its_pipeline_embeds(encoders):
    texts = [prose(n, 3 + 2 * n) for n in range(7)] + ["cat"]
    ours = Encoder(encoders["one"]).embed(texts)
    torch.testing.assert_close(torch.from_numpy(ours), ch.load(encoders["one"]).embed(texts), atol=1e-5, rtol=1e-5)


def test_a_text_that_is_too_long_is_cut_and_told(encoders, caplog):
    encoder = Encoder(encoders["one"])
    texts = [prose(1, 90), "cat", prose(1, 200)]
    ours = encoder.embed(texts)
    assert "2 of 3 texts were cut" in caplog.text
    torch.testing.assert_close(torch.from_numpy(ours), ch.load(encoders["one"]).embed(texts), atol=1e-5, rtol=1e-5)


# ---- search


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_search_is_exact_and_scores_rise_with_likeness(tmp_path, encoders, metric):
    store = made(tmp_path / "store", encoders["one"], corpus(), metric=metric)
    chunks = [chunk for name in store.documents() for chunk in store.chunks(name)]
    pipe = ch.load(encoders["one"])
    vectors = pipe.embed([chunk.text for chunk in chunks]).double()
    query = pipe.embed("a dog ran on the mat").double()
    if metric == "cosine":
        scores = torch.nn.functional.cosine_similarity(vectors, query[None])
    else:
        scores = -(vectors - query).square().sum(1)
    best = scores.sort(descending=True).values[:5]
    hits = store.search("a dog ran on the mat", k=5)
    np.testing.assert_allclose([hit.score for hit in hits], best, atol=1e-4)
    assert store.search(chunks[3].text, k=1)[0].score == pytest.approx(1.0 if metric == "cosine" else 0.0, abs=1e-4)


def test_a_hit_says_where_it_is_and_how_it_goes_on(shared):
    chunks = shared.chunks("doc 2")
    assert [chunk.position for chunk in chunks] == list(range(len(chunks))) and len(chunks) > 3
    hit = next(h for h in shared.search(chunks[1].text, k=20) if (h.document, h.position) == ("doc 2", 1))
    assert hit.text == chunks[1].text and hit.source == "file 2"
    assert hit.continuation == chunks[2].text and hit.continuation_tokens == chunks[2].tokens
    assert chunks[-1].continuation == "" and chunks[-1].continuation_tokens == []
    assert "".join(chunk.text for chunk in chunks) == prose(2, 32)


def test_more_than_there_are_gives_all(shared):
    hits = shared.search("the cat", k=10_000)
    assert len(hits) == len(shared)
    assert len({(hit.document, hit.position) for hit in hits}) == len(hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_list_of_queries_gives_a_list(shared):
    texts = ["the cat sat", "a dog"]
    assert shared.search(texts, k=3) == [shared.search(text, k=3) for text in texts]


def test_documents_can_be_passed_over(shared):
    text = shared.chunks("doc 1")[0].text
    assert all(hit.document != "doc 1" for hit in shared.search(text, k=100, without=["doc 1"]))
    assert any(hit.document == "doc 1" for hit in shared.search(text, k=100))


@pytest.mark.parametrize("query", ["", "  \n", None, 7, ["cat", ""]])
def test_a_query_that_is_none(shared, query):
    with pytest.raises(InputError, match="at least one word"):
        shared.search(query)


@pytest.mark.parametrize("k", [0, -1, 1.5, "two"])
def test_a_number_of_hits_that_is_none(shared, k):
    with pytest.raises(InputError, match="k is"):
        shared.search("cat", k=k)


def test_a_query_in_another_script_is_refused_in_words(shared):
    with pytest.raises(InputError, match="knows no word of the query"):
        shared.search("Привет")


# ---- documents come and go


def test_the_same_again_changes_nothing(tmp_path, encoders):
    store = made(tmp_path / "store", encoders["one"], corpus())
    before = len(store)
    report = store.add(corpus())
    assert (report.added, report.replaced, report.removed, report.unchanged, report.chunks) == (0, 0, 0, 6, 0)
    assert len(store) == before and store.check().is_good


@pytest.mark.parametrize("words", [3, 30, 80])
def test_a_changed_document_is_replaced(tmp_path, encoders, words):
    """By a shorter, an equally long and a longer one."""
    store = made(tmp_path / "store", encoders["one"], corpus())
    others = len(store) - len(store.chunks("doc 1"))
    report = store.add([Document("doc 1", prose(99, words), "file 1")])
    assert (report.added, report.replaced) == (0, 1)
    assert "".join(chunk.text for chunk in store.chunks("doc 1")) == prose(99, words)
    assert len(store) == others + len(store.chunks("doc 1")) and store.check().is_good


def test_what_a_source_no_longer_holds_is_removed(tmp_path, encoders):
    rows = [Document(f"rows.jsonl:{n}", prose(n, 12), "rows.jsonl") for n in range(4)]
    store = made(tmp_path / "store", encoders["one"], [*rows, Document("other", "a dog", "other.txt")])
    report = store.add(rows[:2])
    assert report.removed == 2 and set(store.documents()) == {"rows.jsonl:0", "rows.jsonl:1", "other"}
    report = store.add([Document("other", " \n", "other.txt")])
    assert report.removed == 1 and report.empty == ["other"] and "other" not in store.documents()


def test_delete(tmp_path, encoders):
    store = made(tmp_path / "store", encoders["one"], [*corpus(3), Document('it\'s "here" 猫', "a dog sat", "")])
    with pytest.raises(InputError, match=r"no document doc 7\. Did you mean doc"):
        store.delete(["doc 0", "doc 7"])
    assert "doc 0" in store.documents()
    assert store.delete(["doc 0", 'it\'s "here" 猫']) == 2
    assert set(store.documents()) == {"doc 1", "doc 2"} and store.check().is_good
    store.delete(["doc 1", "doc 2"])
    assert len(store) == 0 and store.search("cat") == [] and store.check().is_good


def test_a_name_given_twice_counts_once(tmp_path, encoders):
    folder = tmp_path / "store"
    report = build(folder, [Document("a", "a dog"), Document("a", "the cat")], encoder=encoders["one"], chunk_size=SIZE)
    assert report.repeated == ["a"] and [chunk.text for chunk in Store(folder).chunks("a")] == ["a dog"]


@pytest.mark.parametrize(
    ("text", "chunks"), [("cat", 1), ("cat " * 8, 1), ("cat " * 9, 2), ("cat " * 250_000, 31_250), ("c" * 1_000_000, 1)]
)
def test_odd_documents(tmp_path, encoders, monkeypatch, text, chunks):
    """One word, a whole chunk, a token more, a line of a million characters with and without spaces."""
    monkeypatch.setattr(Encoder, "embed", lambda self, texts, advance=None: np.ones((len(texts), 24), np.float32))
    store = made(tmp_path / "store", encoders["one"], [Document("odd", text)])
    assert len(store) == chunks
    assert "".join(chunk.text for chunk in store.chunks("odd")) == text.strip()


def test_halves_of_surrogate_pairs_do_not_stop_a_build(tmp_path, encoders):
    store = made(tmp_path / "store", encoders["one"], [Document("odd", "a dog \ud800 sat")])
    assert store.search("dog", k=1)[0].text == "a dog ? sat" and store.check().is_good


@pytest.mark.parametrize("documents", [[], [Document("a", "")], [Document("a", " \n"), Document("b", "\x07")]])
def test_an_empty_corpus_leaves_nothing_behind(tmp_path, encoders, documents):
    with pytest.raises(InputError, match="the corpus is empty"):
        build(tmp_path / "deep" / "store", documents, encoder=encoders["one"], chunk_size=SIZE)
    assert list(tmp_path.iterdir()) == []


def test_chunks_of_unknown_words_are_counted(tmp_path, encoders):
    documents = [Document("a", "Привет мир"), Document("b", "a dog")]
    report = build(tmp_path / "s", documents, encoder=encoders["one"], chunk_size=SIZE)
    assert report.unknown == 1


# ---- the index


def test_an_index_finds_what_exact_search_finds(tmp_path, encoders, monkeypatch):
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(40, 24))[rng.integers(0, 40, 3000)] + 0.3 * rng.normal(size=(3000, 24))
    made_so_far = 0

    def embed(self, texts, advance=None):
        nonlocal made_so_far
        made_so_far += len(texts)
        return drawn[made_so_far - len(texts) : made_so_far].astype(np.float32)

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "embed", embed)
        patch.setattr(Encoder, "width", 24)
        patch.setattr("clearhead.retrieval.building.LARGE", 2000)
        documents = [Document(f"{n}", prose(n, SIZE)) for n in range(2500)]
        report = build(tmp_path / "s", documents, encoder=encoders["one"], chunk_size=SIZE)
        assert report.has_index
        # rows that came after the index was made are found too
        build(tmp_path / "s", [Document(f"later {n}", prose(n, SIZE)) for n in range(500)])
    store = Store(tmp_path / "s")
    count = len(store)
    assert count >= 3000
    queries = [prose(n, 9) for n in range(20)]
    exact, indexed = store.search(queries, 10, exact=True), store.search(queries, 10)
    places = [[{(hit.document, hit.position) for hit in hits} for hits in found] for found in (exact, indexed)]
    assert np.mean([len(a & b) / 10 for a, b in zip(*places, strict=True)]) > 0.9
    for one, other in zip(exact, indexed, strict=True):  # a score is exact, though the way to it is not
        scores = {(hit.document, hit.position): hit.score for hit in one}
        for hit in other:
            assert hit.score == pytest.approx(scores.get((hit.document, hit.position), hit.score), abs=1e-4)
    store.index("exact")
    assert not store.has_index and store.search(queries, 10) == exact


def test_too_few_for_an_index(tmp_path, encoders):
    with pytest.raises(StoreError, match="at least 256 chunks"):
        build(tmp_path / "s", corpus(), encoder=encoders["one"], chunk_size=SIZE, index="ivf-pq")
    with pytest.raises(InputError, match="auto, exact or ivf-pq"):
        build(tmp_path / "s", corpus(), encoder=encoders["one"], index="hnsw")


# ---- what does not fit


def test_another_encoder_is_refused(tmp_path, encoders):
    folder = tmp_path / "store"
    store = made(folder, encoders["one"], corpus())
    before = len(store)
    for other in ("two", "wide"):
        with pytest.raises(StoreError, match="made with another encoder"):
            Store(folder, encoder=encoders[other])
        with pytest.raises(StoreError, match="made with another encoder"):
            build(folder, corpus(9), encoder=encoders[other])
    assert len(store) == before


def test_an_encoder_that_moved_can_be_named(tmp_path, encoders):
    import shutil

    shutil.copytree(encoders["one"], tmp_path / "here")
    made(tmp_path / "store", str(tmp_path / "here"), corpus())
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(ClearheadError, match="Say where it is now"):
        Store(tmp_path / "store").search("cat")
    assert Store(tmp_path / "store", encoder=str(tmp_path / "there")).search("cat", k=1)


@pytest.mark.parametrize(("option", "value"), [("chunk_size", 9), ("metric", "l2")])
def test_other_settings_are_refused(tmp_path, encoders, option, value):
    made(tmp_path / "store", encoders["one"], corpus())
    with pytest.raises(StoreError, match=f"made with {option}"):
        build(tmp_path / "store", corpus(), **{option: value})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"chunk_size": 47}, "too long for .*, which reads 46 at most"),
        ({"chunk_size": 0}, "chunk_size is 0"),
        ({"metric": "manhattan"}, "metric is 'manhattan'"),
        ({"encoder": "nowhere/at/all"}, "nowhere/at/all"),
        ({"encoder": "random-gpt2"}, "has no files"),
    ],
)
def test_settings_that_cannot_be(tmp_path, encoders, options, words):
    with pytest.raises(ClearheadError, match=words):
        build(tmp_path / "store", corpus(), **{"encoder": encoders["one"]} | options)
    assert not (tmp_path / "store").exists()


def test_chunks_may_be_counted_in_another_models_tokens(tmp_path, encoders):
    """Those of the model that will read them: a chunk of the store is then a chunk of the model."""
    from tests.tiny import tiny_pipeline

    writer = tiny_pipeline("gpt2", "causal-lm")
    writer.save(tmp_path / "writer")
    store = made(tmp_path / "store", encoders["one"], corpus(), tokenizer=str(tmp_path / "writer"), chunk_size=12)
    own = ch.load(tmp_path / "writer").tokenizer
    first = store.chunks("doc 0")[0]
    assert first.tokens == own(prose(0, 30), add_special_tokens=False)["input_ids"][:12]
    hit = store.search("a dog ran", k=3)[2]
    assert own.decode(hit.tokens) == hit.text and own.decode(hit.continuation_tokens) == hit.continuation
    with pytest.raises(StoreError, match="cut with the tokenizer of"):
        build(tmp_path / "store", corpus(), tokenizer=encoders["one"])


def test_without_lancedb_it_is_said_how_to_get_it(tmp_path, encoders, monkeypatch):
    monkeypatch.setitem(sys.modules, "lancedb", None)
    for attempt in (lambda: Store(tmp_path), lambda: build(tmp_path / "s", corpus(), encoder=encoders["one"])):
        with pytest.raises(StoreError, match=r'pip install "clearhead\[retrieval\]"'):
            attempt()
    assert list(tmp_path.iterdir()) == []


def test_a_store_at_an_address(tmp_path, encoders):
    """Object storage goes by an address; a disk that is spoken to in the same way stands in for it here."""
    address = f"file-object-store://{tmp_path}/store"
    store = made(address, encoders["one"], corpus())
    store.add([Document("doc 1", "a dog", "file 1"), Document("new", "the sofa")])
    assert store.search("a dog", k=1)[0].document == "doc 1"
    assert len(store.documents()) == 7 and Store(address).check().is_good
    with pytest.raises(StoreError, match="no store"):
        Store(f"file-object-store://{tmp_path}/other")


def test_scores_of_chunks_that_nobody_asked_for(shared):
    assert math.isnan(shared.chunks("doc 0")[0].score) and shared.chunks("no such") == []


# ---- copies, and stores that ship


def test_a_copy_is_changed_and_the_store_is_not(shared, tmp_path):
    store = shared
    copy = store.copy(tmp_path / "copy")
    assert len(copy) == len(store) and copy.fingerprint == store.fingerprint
    copy.add([Document("new", "the dog sat on the mat")])
    assert copy.fingerprint != store.fingerprint and "new" not in store.documents()
    with pytest.raises(InputError, match="there already"):
        store.copy(tmp_path / "copy")


def test_a_store_that_ships_is_found_by_its_name_and_not_written_to(shared, tmp_path, monkeypatch):
    import clearhead_zoo

    monkeypatch.setattr(clearhead_zoo, "STORES", tmp_path / "stores")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="There is no store"):
        Store("facts")
    shared.copy(tmp_path / "stores" / "facts")
    store = Store("facts")
    assert store.is_shipped and len(store)
    name = next(iter(store.documents()))
    for change in (
        lambda: store.add([Document("a", "b")]),
        lambda: store.delete([name]),
        lambda: store.index("exact"),
    ):
        with pytest.raises(StoreError, match="index copy"):
            change()
    (tmp_path / "facts").mkdir()  # a folder of that name here comes first
    with pytest.raises(StoreError, match="There is no store"):
        Store("facts")
