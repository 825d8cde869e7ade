"""CLIP's tokenizer, from vocab.json with merges.txt and from tokenizer.json, against transformers."""

import json
from itertools import pairwise

import pytest
import transformers

from clearhead.text import load_tokenizer
from clearhead.text.readable import BYTE_OF
from tests.text.compare import both, same_encoding, same_everything
from tests.text.samples import WORDS, awkward_texts
from tests.text.test_word_bpe import learnt

TEXTS = [
    "a photo of a CAT!!!",
    "It's John's  3rd\tphoto,\n\nisn't it?",
    "Ünïcödé ŝtrîñg — “quotes” … £100",
    "<|startoftext|>inside<|endoftext|> twice <|endoftext|>",
    "cafe\u0301 ＡＢ ﬁ ẞ İ",
    "a red car 红色的汽车 🚗👨‍👩‍👧",
    "x" * 300,
    "\u00a0\u2028\x1c\x0b \ufeff",
    "don''t 'llama 'S",
]


def write(folder, name, **content):
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def clip(tmp_path):
    letters = list(BYTE_OF)
    merges, _ = learnt([word.lower() for word in WORDS if word.isascii()], 200, 0)
    tokens = [*letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in merges)]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    write(tmp_path, "vocab.json", **{token: n for n, token in enumerate(dict.fromkeys(tokens))})
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges), ""]
    (tmp_path / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    write(
        tmp_path, "tokenizer_config.json", tokenizer_class="CLIPTokenizer", model_max_length=77, errors="replace",
        do_lower_case=True, add_prefix_space=False,
    )  # fmt: skip
    return tmp_path


def check(folder, texts=None):
    ours, theirs = both(folder, transformers.CLIPTokenizer)
    assert ours.get_vocab() == theirs.get_vocab() and ours.model_max_length == theirs.model_max_length == 77
    assert ours.special_tokens_map == theirs.special_tokens_map
    same_everything(ours, theirs, texts or TEXTS + awkward_texts(200, seed=11))
    same_encoding(ours, theirs, ["one man", "the man has a photo"], padding="max_length", max_length=12)
    same_encoding(ours, theirs, ["the man " * 60], truncation=True)
    same_encoding(ours, theirs, "one man", "two men", return_offsets_mapping=True)
    return ours


def test_from_vocab_and_merges(clip, caplog):
    ours = check(clip)
    assert ours.decode(ours.encode("The man's photo"), skip_special_tokens=True) == "the man 's photo"
    assert ours.pad_token_id == ours.eos_token_id and not caplog.records


def test_from_tokenizer_json(clip, tmp_path_factory):
    saved = tmp_path_factory.mktemp("saved")
    transformers.CLIPTokenizer.from_pretrained(clip).save_pretrained(saved)
    assert (saved / "tokenizer.json").is_file()
    check(saved)


def test_stable_diffusion_2_pads_with_an_exclamation_mark(clip):
    write(clip, "special_tokens_map.json", bos_token="<|startoftext|>", eos_token="<|endoftext|>", pad_token="!")
    ours = check(clip)
    assert ours.pad_token_id == ours.convert_tokens_to_ids("!")


def test_known_by_the_model_beside_it_and_saved(clip, tmp_path_factory):
    (clip / "tokenizer_config.json").unlink()
    write(clip, "config.json", model_type="clip_text_model")
    ours, saved = load_tokenizer(clip), tmp_path_factory.mktemp("saved")
    ours.save(saved)
    again, there = load_tokenizer(saved), transformers.AutoTokenizer.from_pretrained(saved)
    for text in TEXTS + awkward_texts(40, seed=12):
        ids = ours.encode(text)
        assert again.encode(text) == there.encode(text) == ids, ascii(text)
        assert again.decode(ids) == there.decode(ids) == ours.decode(ids), ascii(text)


def test_units_are_words(clip):
    units = load_tokenizer(clip).units("The man's attention")
    assert units[0].special and units[-1].special
    texts = "".join(unit.text for unit in units[1:-1])
    assert texts == "the man 's attention "
    assert all(a.end <= b.start for a, b in pairwise(units[1:-1]))
