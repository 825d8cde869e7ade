"""Word vectors as a person asks them: the same numbers as gensim's, from any file, from memory or mapped."""

import logging

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors

import clearhead as ch
from clearhead.errors import CheckpointError, ClearheadError, InputError
from clearhead.pipeline import WordVectors, vector_files
from clearhead.pipeline.vector_files import pipeline_of
from clearhead.text.word_vectors import Words

WORDS = [f"w{n}" for n in range(300)] + ["e-mail", "-", "猫", "Paris"]


@pytest.fixture(scope="module")
def table():
    return torch.randn(len(WORDS), 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def vectors(table):
    return pipeline_of(Words.of(WORDS), table, "own")


@pytest.fixture(scope="module")
def theirs(table):
    known = KeyedVectors(12)
    known.add_vectors(WORDS, table.numpy())
    return known


def close(ours, reference):
    assert [word for word, _ in ours] == [word for word, _ in reference]
    assert np.allclose([cosine for _, cosine in ours], [cosine for _, cosine in reference], atol=1e-6)


def test_a_table_of_words(vectors, table):
    assert isinstance(vectors, WordVectors) and len(vectors) == len(WORDS) and list(vectors) == WORDS
    assert "e-mail" in vectors and "nothing" not in vectors and 3 not in vectors
    row = vectors["猫"]
    assert row.dtype == np.float32 and np.array_equal(row, table[302].numpy())
    row[:] = 0  # its own
    assert np.array_equal(vectors["猫"], table[302].numpy())
    assert "304 words" in repr(vectors) and vectors.width == 12
    ids = vectors.words("w3 猫")["input_ids"]
    assert torch.equal(vectors.model(input_ids=ids).last_hidden_state[0], table[[3, 302]])
    with ch.trace(vectors.model, "embed.output") as seen:
        vectors.model(input_ids=ids)
    assert torch.equal(seen["embed.output"][0], table[[3, 302]])


def test_the_same_as_gensim(vectors, theirs):
    for word in ("w0", "w17", "Paris"):
        close(vectors.nearest(word), theirs.most_similar(word))
        close(vectors.nearest(vectors[word], k=3), theirs.similar_by_vector(vectors[word], topn=3))
    close(vectors.analogy("w1 - w2 + w3", k=7), theirs.most_similar(positive=["w1", "w3"], negative=["w2"], topn=7))
    close(vectors.analogy("w1 + w1 + e-mail"), theirs.most_similar(positive=["w1", "w1", "e-mail"]))
    close(vectors.analogy("- w5 - w6 + w7", 2), theirs.most_similar(positive=["w7"], negative=["w5", "w6"], topn=2))
    assert vectors.similarity("w4", "w9") == pytest.approx(float(theirs.similarity("w4", "w9")), abs=1e-6)
    for start in range(0, 200, 25):
        some = WORDS[start : start + 6]
        assert vectors.odd_one_out(some) == theirs.doesnt_match(some)
    assert vectors.similarity("w4", "w4") == pytest.approx(1) and np.allclose(np.diag(vectors.cosines(WORDS[:4])), 1)


def test_what_is_asked_about_is_left_out(vectors):
    found = vectors.analogy("w1 - w2 + w3", k=1000)
    assert len(found) == len(WORDS) - 3 and not {"w1", "w2", "w3"} & {word for word, _ in found}
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)


def test_wrong_questions(vectors):
    for ask, said in (
        (lambda: vectors["w1000"], "no word “w1000”. Did you mean"),
        (lambda: vectors.nearest("paris"), "Did you mean Paris"),
        (lambda: vectors.nearest("w1", 0), "1 or more"),
        (lambda: vectors.nearest("w1", True), "1 or more"),
        (lambda: vectors.nearest([1.0, 2.0]), "has 12 numbers"),
        (lambda: vectors.analogy("w1 - w1"), "no direction"),
        (lambda: vectors.analogy("w1 w2"), "neither"),
        (lambda: vectors.odd_one_out("w1"), "at least two"),
        (lambda: vectors.odd_one_out([]), "at least two"),
        (lambda: vectors.similarity("w1", "no"), "no word"),
        (lambda: vectors.tokenizer, "reads no text"),
    ):
        with pytest.raises(ClearheadError, match=said):
            ask()
    with pytest.raises(KeyError):
        vectors["nothing"]


def test_zeros_and_no_numbers_are_never_near():
    table = torch.tensor([[1.0, 0], [0, 0], [float("nan"), 1], [0.5, 0.1]])
    found = pipeline_of(Words.of("abcd"), table).nearest("a")
    assert [word for word, _ in found] == ["d", "b"]
    with pytest.raises(ClearheadError, match="no direction"):
        pipeline_of(Words.of("abcd"), table).nearest("b")


@pytest.mark.parametrize("name", ["x.txt", "x.bin", "x.vec", "folder"])
def test_saved_and_loaded(vectors, name, tmp_path):
    vectors.save(tmp_path / name)
    back = ch.load(tmp_path / name)
    assert list(back) == WORDS and torch.equal(back.table, vectors.table)
    assert back.nearest("w1") == vectors.nearest("w1")
    with pytest.raises(ClearheadError):
        vectors.save(tmp_path / name)
    vectors.save(tmp_path / name, overwrite=True)
    if name != "folder":
        known = KeyedVectors.load_word2vec_format(tmp_path / name, binary=name.endswith("bin"))
        assert known.index_to_key == WORDS and np.array_equal(known.vectors, vectors.table.numpy())


def test_what_it_is_not_saved_as(vectors, tmp_path):
    for name in ("x.csv", "x.npy", "x.txt.gz"):
        with pytest.raises(ClearheadError, match=r"saved as \.txt"):
            vectors.save(tmp_path / name)
    with pytest.raises(ClearheadError, match="by the ending"):
        vectors.save(tmp_path / "x", format="transformers")
    assert not list(tmp_path.iterdir())


def test_a_word_twice_keeps_its_first_vector(tmp_path, caplog):
    path = tmp_path / "x.txt"
    path.write_text("4 2\na 1 2\nb 3 4\na 5 6\nc 7 8\n")
    logger = logging.getLogger("clearhead")
    with caplog.at_level(logging.WARNING, "clearhead"):
        logger.propagate, before = True, logger.propagate
        vectors = ch.load(path)
        logger.propagate = before
    assert list(vectors) == ["a", "b", "c"] and vectors["a"].tolist() == [1, 2] and vectors["c"].tolist() == [7, 8]
    assert "more than once ('a'" in caplog.text


@pytest.fixture
def small_is_large(monkeypatch, tmp_path):
    monkeypatch.setattr(vector_files, "LARGE", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "clearhead" / "vectors"


@pytest.mark.parametrize("ending", [".txt", ".bin"])
def test_large_files_are_mapped(vectors, ending, tmp_path, small_is_large):
    path = tmp_path / f"x{ending}"
    vectors.save(path)
    for _ in range(2):
        back = ch.load(path)
        assert list(back) == WORDS and torch.equal(back.table, vectors.table) and back.name == str(path)
        assert back.nearest("w1") == vectors.nearest("w1")
    [kept] = small_is_large.iterdir()
    inode = (kept / "model.safetensors").stat().st_ino
    ch.load(path)
    assert (kept / "model.safetensors").stat().st_ino == inode  # it was not written again
    vectors.save(path, overwrite=True)
    ch.load(path)  # another file of the same name: what was kept of the old one goes
    assert len(list(small_is_large.iterdir())) == 1 and not kept.exists()


def test_a_large_file_with_words_twice(tmp_path, small_is_large):
    path = tmp_path / "x.txt"
    rows = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5), ("d", 6)]
    path.write_text("".join(f"{word} {value} {value}\n" for word, value in rows))
    vectors = ch.load(path)
    assert list(vectors) == ["a", "b", "c", "d"] and vectors.table[:, 0].tolist() == [1, 2, 4, 6]


def test_a_bad_large_file_leaves_nothing(tmp_path, small_is_large):
    path = tmp_path / "x.txt"
    path.write_text("a 1 2\nb 3\n")
    with pytest.raises(CheckpointError, match="line 2"):
        ch.load(path)
    assert not list(small_is_large.iterdir())


def test_where_nothing_can_be_kept(tmp_path, monkeypatch, small_is_large, vectors):
    vectors.save(tmp_path / "x.txt")
    (tmp_path / "cache").write_text("a file in the way")
    assert list(ch.load(tmp_path / "x.txt")) == WORDS


def test_loading_options(tmp_path, vectors):
    path = tmp_path / "x.bin"
    vectors.save(path)
    half = ch.load(path, dtype="float16")
    assert half.table.dtype == torch.float16 and half["w1"].dtype == np.float32
    assert half.nearest("w1", 3)[0][0] == vectors.nearest("w1", 3)[0][0]
    for options, said in (
        ({"task": "causal-lm"}, "no head for the task"), ({"revision": "main"}, "only a model from the hub"),
        ({"quantize": "int8"}, "leave quantize out"), ({"device": "nowhere"}, "cannot be used"),
    ):  # fmt: skip
        with pytest.raises(ClearheadError, match=said):
            ch.load(path, **options)


def test_other_files_are_refused_in_words(tmp_path):
    for name, data, said in (
        ("notes.txt", b"Some text\nand more\n", "holds no word vectors"),
        ("config.json", b"{}", "holds no word vectors"),
        ("empty.bin", b"", "nothing in it"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CheckpointError, match=f"is a file.*{said}"):
            ch.load(tmp_path / name)


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e-20, 1, 1e20, 1e30, 2e38])
def test_large_and_small_numbers_have_directions_too(tmp_path, scale):
    """Their squares are beyond a float32."""
    rows = {"a": (1, 1), "b": (1, -1), "c": (1, 0.5), "tiny": (1e-30, 0), "zero": (0, 0), "plain": (0, 1)}
    lines = [f"{w} {x * scale!r} {y * scale!r}\n" if len(w) == 1 else f"{w} {x} {y}\n" for w, (x, y) in rows.items()]
    (tmp_path / "x.txt").write_text("".join(lines))
    vectors = ch.load(tmp_path / "x.txt")
    near = dict(vectors.nearest("a"))
    least = 0.05 if scale < 1e-40 else 1e-6  # numbers that have few bits
    cosines = {"b": 0.0, "c": 1.5 / np.sqrt(2.5), "tiny": np.sqrt(0.5), "zero": 0.0, "plain": np.sqrt(0.5)}
    assert near == pytest.approx(cosines, abs=least)
    assert vectors.similarity("a", "c") == pytest.approx(cosines["c"], abs=least)
    assert vectors.odd_one_out(["a", "b", "c"]) == "b"
    assert vectors.nearest(vectors["c"], 1)[0][0] == "c"
    assert vectors.analogy("a + b - c", 1)[0][0] in ("tiny", "plain")


def test_infinite_and_missing_numbers_are_near_nothing(tmp_path):
    (tmp_path / "x.txt").write_text("a inf 1\nb nan 1\nc 1 2\nd 2 3\n")
    vectors = ch.load(tmp_path / "x.txt")
    assert [word for word, _ in vectors.nearest("c")] == ["d"]
    for word in "ab":
        with pytest.raises(InputError, match="no direction"):
            vectors.nearest(word)
    for wrong in (None, {}, "c d".split(), object()):
        with pytest.raises(InputError, match=r"word or a vector|has 2 numbers"):
            vectors.nearest(wrong)


def test_damaged_folders(tmp_path, vectors):
    vectors.save(tmp_path / "x")
    words = tmp_path / "x" / "words.txt"
    whole = words.read_bytes()
    for data, said in ((whole[:-1], "cut off"), (whole[:-5], "cut off"), (whole + b"one\n", "do not belong"),
                       (whole.replace("猫".encode(), b"\xe7"), "not UTF-8")):  # fmt: skip
        words.write_bytes(data)
        with pytest.raises(CheckpointError, match=said):
            ch.load(tmp_path / "x")
    words.unlink()
    with pytest.raises(CheckpointError, match=r"words\.txt"):
        ch.load(tmp_path / "x")


def test_the_shipped_one():
    glove = ch.load("glove")
    assert (len(glove), glove.width, glove.name) == (40_000, 50, "glove")
    assert glove.analogy("king - man + woman")[0][0] == "queen"
    assert glove.odd_one_out(["breakfast", "lunch", "cereal", "dinner"]) == "cereal"


def test_a_text_is_the_mean_of_its_words(vectors, table):
    rows = table[[3, 7, 303]].mean(0)
    torch.testing.assert_close(vectors.embed("w3, unheard-of W7 … Paris"), rows)
    both = vectors.embed(["w3 w7 Paris", "猫"], normalize=True, pooling="max")
    torch.testing.assert_close(both[0], torch.nn.functional.normalize(table[[3, 7, 303]].amax(0), dim=-1))
    [hit] = vectors.search("w3", ["w9 w8", "w3 w3", "猫"], top_k=1)
    assert hit.index == 1 and hit.score == pytest.approx(1.0, abs=1e-6)
    for wrong in ("nothing known", "", 3):
        with pytest.raises(ClearheadError):
            vectors.embed(wrong)
    with pytest.raises(ClearheadError, match="mean or max"):
        vectors.embed("w3", pooling="cls")
