"""Files of word vectors: told apart by looking, read and written to the bit, and what is wrong with one said."""

import gzip
import struct

import numpy as np
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import ClearheadError, UnknownWordError
from clearhead.text.word_vectors import Words, look, parse, rows, token_words, write_vectors
from clearhead.text.word_vectors.words import hash_of
from tests.tiny import tiny_pipeline

WORDS = ["the", "e-mail", "naïve", "猫", "-", "1990", "\u3000", "don't"]
TABLE = np.random.default_rng(0).standard_normal((len(WORDS), 5)).astype(np.float32)
NATIVE = ["native", "plain"]


@pytest.fixture(params=NATIVE)
def reader(request, monkeypatch):
    """With the rows read in C, and without a compiler."""
    if request.param == "plain":
        monkeypatch.setattr(rows, "_library", lambda: None)
    elif rows._library() is None:
        pytest.skip("no C compiler")


def glove_text(words=WORDS, table=TABLE):
    return "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, table, strict=True))


def read(path):
    file = look(path)
    blocks = list(file.blocks())
    return file, list(Words(b"".join(words for words, _ in blocks))), np.concatenate([values for _, values in blocks])


def written(path, words=WORDS, table=TABLE):
    write_vectors(path, Words.of(words), lambda a, b: table[a:b], table.shape[1])
    return path


def kinds(folder):
    glove, text, binary = (folder / name for name in ("glove.txt", "w2v.txt", "w2v.bin"))
    glove.write_text(glove_text(), encoding="utf-8")
    return {"glove": glove, "word2vec": written(text), "word2vec-binary": written(binary)}


# ---- what is right


def test_the_formats_are_told_apart_and_give_the_same(tmp_path, reader):
    for kind, path in kinds(tmp_path).items():
        file, words, table = read(path)
        assert (file.format, file.width, words) == (kind, 5, WORDS)
        assert file.count == (None if kind == "glove" else len(WORDS))
        assert table.dtype == np.float32 and np.array_equal(table, TABLE)


def test_a_name_says_nothing(tmp_path, reader):
    """Only what is in a file counts."""
    for kind, path in kinds(tmp_path).items():
        other = path.rename(tmp_path / f"{kind}.dat")
        assert look(other).format == kind


def test_gzip(tmp_path, reader):
    for kind, path in kinds(tmp_path).items():
        packed = tmp_path / f"{kind}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        file, words, table = read(packed)
        assert (file.format, words) == (kind, WORDS) and np.array_equal(table, TABLE)
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(ClearheadError, match="cut off"):
        read(packed)


def test_what_writers_do_differently(tmp_path, reader):
    """Line ends of Windows, a byte-order mark, tabs, trailing spaces (fastText), no line end at the end of the file."""
    path = tmp_path / "x.txt"
    for text in ("a 1 2\r\nb 3 4\r\n", "\ufeffa 1 2\nb 3 4\n", "a\t1\t2\nb\t3\t4\n", "a 1 2 \nb 3 4 \n", "a 1 2\nb 3 4",
                 "2 2\na 1 2\nb 3 4\n\n\n", "2 2 \r\na 1 2 \r\nb 3 4 \r\n", "a 1e0 +2\nb 3.0E+0 4.\n"):  # fmt: skip
        path.write_bytes(text.encode())
        _, words, table = read(path)
        assert words == ["a", "b"] and table.tolist() == [[1, 2], [3, 4]], text


def test_a_binary_file_with_and_without_line_ends(tmp_path):
    row = struct.pack("<3f", 1.5, -2.25, 1e-40)
    for end in (b"", b"\n"):
        path = tmp_path / "x.bin"
        path.write_bytes(b"2 3\n" + b"a " + row + end + "é ".encode() + row + end)
        file, words, table = read(path)
        assert file.format == "word2vec-binary" and words == ["a", "é"]
        assert table.tobytes() == row * 2


def test_words_may_hold_spaces_in_text(tmp_path, reader):
    """A few in the largest GloVe files do."""
    path = tmp_path / "x.txt"
    path.write_text("a 1 2\nat name@domain.com 3 4\n. . . 5 6\nb 7 8\n")
    _, words, table = read(path)
    assert words == ["a", "at name@domain.com", ". . .", "b"] and table[:, 0].tolist() == [1, 3, 5, 7]
    with pytest.raises(ClearheadError, match="hold a space"):
        written(tmp_path / "y.bin", words, table)
    assert not (tmp_path / "y.bin").exists()


def test_files_of_many_blocks(tmp_path, monkeypatch, reader):
    from clearhead.text.word_vectors import read as module

    monkeypatch.setattr(module, "TOGETHER", 64)
    for kind, path in kinds(tmp_path).items():
        _, words, table = read(path)
        assert words == WORDS and np.array_equal(table, TABLE), kind


FLOATS = st.floats(width=32, allow_subnormal=True)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(FLOATS, min_size=3, max_size=3), ending=st.sampled_from([".txt", ".bin"]))
def test_a_float32_comes_back_as_it_was(values, ending, tmp_path_factory):
    path = tmp_path_factory.mktemp("floats") / f"x{ending}"
    table = np.array([values, values], np.float32)
    _, words, back = read(written(path, ["a", "b"], table))
    assert words == ["a", "b"]
    there = ~np.isnan(table)
    assert np.array_equal(np.isnan(back), ~there) and back[there].tobytes() == table[there].tobytes()


@settings(max_examples=300, deadline=None)
@given(st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr), FLOATS.map(lambda x: f"{x:.9g}"),
    st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{0,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
))  # fmt: skip
def test_numbers_are_rounded_once(text):
    """To the float32 nearest to what is written, however many digits there are."""
    from fractions import Fraction

    _, values, used = rows.read_rows(f"w {text}\n".encode(), 1)
    if not used or not np.isfinite(values[0, 0]):
        return  # left to the careful reader, or beyond the largest float32
    exact, got = Fraction(text), values[0, 0]
    with np.errstate(over="ignore"):
        both = [np.nextafter(got, np.float32(np.inf)), np.nextafter(got, np.float32(-np.inf))]
    for beside in both:
        if np.isfinite(beside):
            assert abs(Fraction(float(got)) - exact) <= abs(Fraction(float(beside)) - exact)


def test_gensim_reads_ours_and_we_gensims(tmp_path, reader):
    for binary, name in ((False, "ours.txt"), (True, "ours.bin")):
        there = KeyedVectors.load_word2vec_format(written(tmp_path / name), binary=binary)
        assert there.index_to_key == WORDS and np.array_equal(there.vectors, TABLE)
    theirs = KeyedVectors(5)
    theirs.add_vectors(WORDS, TABLE)
    for binary, header in ((False, True), (True, True), (False, False)):
        path = tmp_path / "theirs"
        theirs.save_word2vec_format(path, binary=binary, write_header=header)
        file, words, table = read(path)
        assert file.format == ("word2vec-binary" if binary else "word2vec" if header else "glove")
        assert words == WORDS and np.array_equal(table, TABLE)


# ---- what is wrong


BAD_TEXT = {
    "a row too short": ("a 1 2 3\nb 1 2\n", "line 2.*has 2 numbers"),
    "a row too long": ("a 1 2 3\nb 1 2 3 4\n", "line 2.*has 4 numbers"),
    "no number": ("a 1 2 3\nb 1 x 3\n", "line 2.*'x' where a number"),
    "a number with letters": ("a 1 2 3\nb 1 2.5abc 3\n", "line 2.*where a number"),
    "an empty line": ("a 1 2 3\n\nb 1 2 3\n", "line 2.*is empty"),
    "no word": ("a 1 2 3\n 1 2 3\n", "line 2.*no word"),
    "too few words": ("3 2\na 1 2\nb 3 4\n", "says in its first line that it has 3 words, but there are 2"),
    "too many words": ("1 2\na 1 2\nb 3 4\n", "more than 1"),
    "another width": ("2 3\na 1 2\nb 3 4\n", "line 2.*has 2 numbers.*not 3"),
    "not UTF-8": (b"a 1 2\nna\xefve 3 4\n", "not UTF-8: word 2 is b'na"),
    "not UTF-8, below a header": (b"2 2\na 1 2\nna\xefve 3 4\n", "not UTF-8: word 2 is b'na"),
    "a header alone": ("5 3\n", "cut off"),
    "no words": ("0 3\na 1 2 3\n", "cannot be"),
    "no width": ("1 0\na\n", "cannot be"),
    "far too wide": ("1 99999999999\na 1\n", "cannot be"),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_bad_text(name, tmp_path, reader):
    text, said = BAD_TEXT[name]
    path = tmp_path / "x.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ClearheadError, match=said):
        read(path)


def test_bad_binary(tmp_path):
    path = written(tmp_path / "x.bin")
    whole = path.read_bytes()
    body = whole.partition(b"\n")[2]
    for data, said in (
        (whole[:-7], "but there are 7, and then the file ends inside"),
        (b"9 5\n" + body, "but there are 8"),
        (b"7 5\n" + body, "more"),
        (b"8 6\n" + body, "but there are|stands no other|not UTF-8"),
        (b"8 4\n" + body, "not UTF-8|stands no other|but there are|more"),
        (whole.replace("naïve".encode(), b"na\xefve"), "not UTF-8: word 3"),
    ):
        path.write_bytes(data)
        with pytest.raises(ClearheadError, match=said):
            read(path)


def test_other_files_are_not_taken_for_vectors(tmp_path):
    path = tmp_path / "x"
    for data in (
        b"",
        b"\n",
        b"# A title\n\nSome words.\n",
        b'{"a": 1}\n',
        b"\x80\x04\x95 pickled",
        b"word\n",
        bytes(100),
    ):
        path.write_bytes(data)
        assert look(path) is None, data


def test_what_cannot_be_written(tmp_path):
    for words, name, said in (
        (["a", ""], "x.txt", "empty"), (["a b"], "x.txt", "hold a space"),
        (["a", "b\r"], "x.txt", "hold a space"), (["a"], "x.csv", "saved as .txt"),
        (["a"], "no/x.txt", "cannot be written"),
    ):  # fmt: skip
        with pytest.raises(ClearheadError, match=said):
            written(tmp_path / name, words, TABLE[: len(words)])
    path = written(tmp_path / "x.txt")
    with pytest.raises(ClearheadError, match="there already"):
        written(path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]


# ---- words


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8), max_size=40))
def test_words_are_found(given_words):
    words = Words.of(given_words)
    assert len(words) == len(given_words) and list(words) == given_words
    for word in {*given_words, "x", ""}:
        assert words.find(word) == (given_words.index(word) if word in given_words else -1)
    again = [n for n, word in enumerate(given_words) if word in given_words[:n]]
    assert words.repeated().tolist() == again
    assert list(words.without(words.repeated())) == list(dict.fromkeys(given_words))


def test_equal_hashes_are_told_apart(monkeypatch):
    """By their bytes: here all words have one hash."""
    from clearhead.text.word_vectors import words as module

    monkeypatch.setattr(module, "hash_of", lambda word: 7)
    monkeypatch.setattr(Words, "_hashes", lambda self: np.full(len(self), 7, np.uint64))
    words = Words.of(["a", "b", "a", "c", "b"])
    assert [words.find(word) for word in "abcd"] == [0, 1, 3, -1]
    assert words.repeated().tolist() == [2, 4]


def test_the_hash_is_fnv():
    assert hash_of(b"") == 0xCBF29CE484222325 and hash_of(b"foobar") == 0x85944171F73967E8
    words = Words.of(["", "foobar", "naïve"])
    assert words._hashes().tolist() == [hash_of(word.encode()) for word in words]


def test_an_unknown_word_names_near_ones():
    words = Words.of(["king", "kings", "Paris", "queen"])
    for wrong, right in (("kingg", "king or kings"), ("paris", "Paris"), ("QUEEN", "queen")):
        with pytest.raises(UnknownWordError, match=f"Did you mean {right}"):
            words.row(wrong)
    with pytest.raises(KeyError):
        words.row("xyzzy")
    for no_word in (3, None, ["king"]):
        with pytest.raises(ClearheadError):
            words.row(no_word)
    assert words.find("\ud800") == -1


def test_sums_of_words():
    assert parse("king - man + woman") == [("king", 1), ("man", -1), ("woman", 1)]
    assert parse("king − man") == [("king", 1), ("man", -1)]
    assert parse("e-mail") == [("e-mail", 1)] and parse(" - man + king ") == [("man", -1), ("king", 1)]
    assert parse("-") == [("-", 1)] and parse("a - - + +") == [("a", 1), ("-", -1), ("+", 1)]
    for wrong in ("", "  ", "king queen", "king -", "king - man +", "king -man", 7):
        with pytest.raises(ClearheadError):
            parse(wrong)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_tokens_as_words(name):
    tokenizer = tiny_pipeline(name).tokenizer
    words = token_words(tokenizer)
    assert len(words) == max(tokenizer.get_vocab().values()) + 1
    for n in tokenizer.encode("the cat", add_special_tokens=False):
        token = tokenizer.readable([n])[0]
        whole = token.startswith(" ") or (name == "bert" and not token.startswith("##"))
        assert words[n] == (token.strip() if whole else token if token.startswith("##") else f"##{token}")
