"""Streaming: the pieces are the whole, no piece shows half a character, and long texts cost no more per id."""

import json
import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders

from clearhead.errors import InputError
from clearhead.text import TextStream, Tokenizer, load_tokenizer
from clearhead.text.backend import copy_of
from tests.text.samples import awkward_texts
from tests.text.test_sentencepiece import MODELS, train

REPLACEMENT = "\ufffd"


def stream(tok: Tokenizer, ids: list[int], skip: bool) -> list[str]:
    pieces = TextStream(tok, skip_special_tokens=skip)
    return [*(pieces.push(index) for index in ids), pieces.flush()]


def check(tok: Tokenizer, ids: list[int]) -> None:
    for skip in (False, True):
        assert "".join(stream(tok, ids, skip)) == tok.decode(ids, skip_special_tokens=skip), ids


@pytest.mark.parametrize("clean", [False, True])
def test_texts(folder, clean):
    tok = load_tokenizer(folder)
    tok.clean_up_tokenization_spaces = clean
    for text in awkward_texts(120, seed=51):
        check(tok, tok.encode(text))


@pytest.mark.parametrize("clean", [False, True])
def test_random_ids(folder, clean):
    """Most of them are no valid UTF-8 at all."""
    tok = load_tokenizer(folder)
    tok.clean_up_tokenization_spaces = clean
    rng = random.Random(1)
    for _ in range(150):
        check(tok, [rng.randrange(len(tok) + 3) for _ in range(rng.randint(0, 40))])


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(bytes_=st.lists(st.integers(0, 255), max_size=30))
def test_random_bytes(trained, bytes_):
    tok = load_tokenizer(trained["bpe"])
    alphabet = sorted(token for token in tok.get_vocab() if len(token) == 1)
    check(tok, tok.convert_tokens_to_ids([alphabet[byte] for byte in bytes_]))


@pytest.mark.parametrize("name", ["unigram", "unigram, bytes", "bpe, like Llama", "bpe, like Gemma"])
def test_sentencepiece(lines, tmp_path, name):
    (tmp_path / "tokenizer.model").write_bytes(train(lines, **MODELS[name]))
    tok = load_tokenizer(tmp_path)
    rng = random.Random(2)
    for text in awkward_texts(80, seed=52):
        check(tok, tok.encode(text))
    for _ in range(150):
        # runs of bytes, valid and not, between other tokens
        low, high = rng.choice([(0, len(tok)), (3, min(259, len(tok)))])
        check(tok, [rng.randrange(low, high) for _ in range(rng.randint(0, 25))])


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.WordPiece(prefix="##", cleanup=False),
        decoders.BPEDecoder(suffix="e"),
        decoders.BPEDecoder(suffix="</w>"),
        decoders.Metaspace(),
        decoders.CTC(pad_token="[PAD]", word_delimiter_token="the"),
        decoders.Sequence([decoders.Fuse(), decoders.Replace("the", "X")]),
        decoders.Sequence([decoders.Fuse(), decoders.Strip("e", 0, 1)]),
        decoders.Sequence([decoders.Replace(Regex("e+"), "E"), decoders.Fuse(), decoders.Strip("t", 1, 0)]),
        decoders.Sequence([decoders.ByteLevel()]),
        decoders.Sequence([decoders.Replace("a", "b"), decoders.ByteLevel()]),
    ],
    ids=str,
)
def test_any_decoder(trained, decoder):
    plain = load_tokenizer(trained["wordpiece"])
    backend = copy_of(plain.backend)
    if decoder is None:
        data = json.loads(backend.to_str())
        data["decoder"] = None
        backend = type(backend).from_str(json.dumps(data))
    else:
        backend.decoder = decoder
    tok = Tokenizer(backend)
    rng = random.Random(3)
    for _ in range(100):
        check(tok, [rng.randrange(len(tok)) for _ in range(rng.randint(1, 20))])


def test_no_piece_shows_half_a_character(trained):
    tok = load_tokenizer(trained["bpe"])
    for text in ("😀😀 字字字 é", "a👨‍👩‍👧b", "नमस्ते दुनिया"):
        ids = tok.encode(text)
        assert any(REPLACEMENT in tok.decode(index) for index in ids)
        pieces = stream(tok, ids, True)
        assert "".join(pieces) == text
        assert all(REPLACEMENT not in piece for piece in pieces)


def test_what_is_not_finished_comes_with_the_flush(trained):
    tok = load_tokenizer(trained["bpe"])
    ids = tok.encode("ok 😀")[:-1]
    pieces = stream(tok, ids, True)
    assert pieces[-1] == REPLACEMENT
    assert "".join(pieces) == tok.decode(ids) == "ok " + REPLACEMENT


def test_words_appear_as_they_are_finished(trained, minilm):
    tok = load_tokenizer(trained["bpe"])
    assert stream(tok, tok.encode("the man said"), True)[:3] == ["the", " man", " said"]
    tok = load_tokenizer(minilm)
    assert stream(tok, tok.encode("the man said ."), True) == ["", "the", " man", " said", ".", "", ""]


def test_a_prompt_marked_as_shown_is_not_repeated(folder):
    tok = load_tokenizer(folder)
    ids = tok.encode("The man walked over there", add_special_tokens=False)
    for cut in range(len(ids) + 1):
        pieces = TextStream(tok)
        for index in ids[:cut]:
            pieces.push(index)
        pieces.mark_shown()
        new = "".join([*(pieces.push(index) for index in ids[cut:]), pieces.flush()])
        assert tok.decode(ids[:cut]) + new == tok.decode(ids)


def test_after_a_flush_a_new_text_begins(folder):
    tok = load_tokenizer(folder)
    ids = tok.encode("the man", add_special_tokens=False)
    pieces = TextStream(tok)
    first = "".join([*map(pieces.push, ids), pieces.flush()])
    assert "".join([*map(pieces.push, ids), pieces.flush()]) == first == tok.decode(ids)


def test_special_tokens_are_skipped_by_default(trained):
    tok = load_tokenizer(trained["wordpiece"])
    ids = tok.encode("the man")
    assert "".join(stream(tok, ids, True)) == "the man"
    assert "".join(stream(tok, ids, False)) == "[CLS] the man [SEP]"


def test_ids_come_in_any_form_of_number(trained):
    tok = load_tokenizer(trained["bpe"])
    assert TextStream(tok).push(torch.tensor(tok.encode("the")[0])) == tok.decode(tok.encode("the")[0])
    for wrong in ("x", None, -1, [1, 2]):
        with pytest.raises(InputError, match="not a token id"):
            TextStream(tok).push(wrong)


class Counting:
    """Counts how many ids the wrapped tokenizer is asked to decode."""

    def __init__(self, backend):
        self.backend, self.decoded = backend, 0

    def __getattr__(self, name):
        return getattr(self.backend, name)

    def decode(self, ids, **options):
        self.decoded += len(ids)
        return self.backend.decode(ids, **options)


@pytest.mark.parametrize("length", [100, 1000])
def test_long_texts_cost_no_more_per_id(trained, length):
    tok = load_tokenizer(trained["unigram"])
    pieces = TextStream(tok)
    counting = Counting(tok.backend)
    pieces._pieces._backend = counting
    for index in tok.encode("the man said so " * length)[:length]:
        pieces.push(index)
    assert counting.decoded <= 3 * length
