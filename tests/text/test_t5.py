"""T5's SentencePiece file and its sentinels, against the tokenizer of transformers on random texts."""

import json
import random
import re

import pytest
import sentencepiece
import transformers

from clearhead.errors import TokenizerError
from clearhead.text import load_tokenizer

from .samples import awkward
from .test_sentencepiece import train


@pytest.fixture(scope="module")
def spiece(lines):
    return train(lines, model_type="unigram", vocab_size=400, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def opened(folder, spiece, config, tokenizer_config=None):
    (folder / "spiece.model").write_bytes(spiece)
    (folder / "config.json").write_text(json.dumps(config))
    if tokenizer_config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return load_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder)


def texts(seed, sentinels):
    rng = random.Random(seed)
    for n in range(400):
        text = awkward(rng, accents=False, runs=False)
        for _ in range(rng.randint(0, 3) if sentinels and n % 2 else 0):
            at = rng.randint(0, len(text))
            text = text[:at] + f"<extra_id_{rng.randrange(sentinels)}>" + text[at:]
        yield text


def compare(ours, theirs, spiece, seed, sentinels):
    """Ours is SentencePiece's answer on every text, and that of transformers wherever it gives SentencePiece's too.

    (It takes U+0085 for a space, and treats a joined character such as "½" + U+200D as one.)
    """
    pieces = sentencepiece.SentencePieceProcessor(model_proto=spiece)
    compared = 0
    for text in texts(seed, sentinels):
        parts = re.split(r"<extra_id_\d+>", text) if sentinels else [text]
        if len(parts) == 1:
            assert ours.encode(text) == [*pieces.encode(text), 1], text
        if all(theirs.encode(part) == [*pieces.encode(part), 1] for part in parts):
            assert ours.encode(text) == theirs.encode(text), text
            assert ours.encode(text, "the man") == theirs.encode(text, "the man"), text
            compared += 1
    assert compared > 300


@pytest.mark.parametrize("model_type", ["t5", "mt5"])
def test_a_bare_folder_has_a_hundred_sentinels(tmp_path, spiece, model_type):
    ours, theirs = opened(tmp_path, spiece, {"model_type": model_type})
    assert type(theirs) is transformers.T5Tokenizer
    assert len(ours) == len(theirs) == 500
    assert ours.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"]) == [499, 400]
    assert ours.get_vocab() == theirs.get_vocab()
    compare(ours, theirs, spiece, seed=1, sentinels=100)


def test_no_sentinels(tmp_path, spiece):
    """As mT5's folders say: its sentinels are pieces like any other."""
    ours, theirs = opened(tmp_path, spiece, {"model_type": "mt5"}, {"tokenizer_class": "T5Tokenizer", "extra_ids": 0})
    assert len(ours) == len(theirs) == 400
    compare(ours, theirs, spiece, seed=2, sentinels=0)


def test_offsets_point_at_the_text(tmp_path, spiece):
    ours, _ = opened(tmp_path, spiece, {"model_type": "t5"})
    text = "The  man <extra_id_7> walked"
    encoded = ours(text, return_offsets_mapping=True)
    assert [text[a:b].strip() for a, b in encoded["offset_mapping"]] == ["The", "man", "<extra_id_7>", "walked", ""]


def test_decoding_gives_the_text_back(tmp_path, spiece):
    ours, theirs = opened(tmp_path, spiece, {"model_type": "t5"})
    ids = ours.encode("The man <extra_id_0> walked over there.")
    assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids, skip_special_tokens=True)
    assert "<extra_id_0>" in ours.decode(ids)


@pytest.mark.parametrize("count", ["many", -1, 2.5, None])
def test_a_number_of_sentinels_that_is_none_is_refused(count, spiece, tmp_path):
    (tmp_path / "spiece.model").write_bytes(spiece)
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_ids": count}))
    with pytest.raises(TokenizerError, match="extra_ids"):
        load_tokenizer(tmp_path)
