"""GPT's and CTRL's tokenizers, from the files they were published with, against transformers."""

import json
import pickle
import random
from itertools import pairwise

import pytest
import transformers

from clearhead.errors import TokenizerError
from clearhead.text import load_tokenizer
from clearhead.text.builders.ctrl import CONTROL_CODES, control_codes
from tests.text.compare import both, same_encoding, same_everything
from tests.text.samples import HAN, WORDS, awkward_texts

TEXTS = [
    "Hello World, CAFÉ don't stop .",
    " two  spaces ",
    "line one\nline two \n\n three",
    "<unk> a<unk>b",
    "x",
    "漢字",
]


def learnt(words: list[str], count: int, seed: int) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Merges learnt from words by counting pairs, and how the words are cut at the end."""
    rng = random.Random(seed)
    cut = [[*word[:-1], word[-1] + "</w>"] for word in words for _ in range(rng.randint(1, 4))]
    merges = []
    for _ in range(count):
        pairs: dict[tuple[str, str], int] = {}
        for parts in cut:
            for pair in pairwise(parts):
                pairs[pair] = pairs.get(pair, 0) + 1
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for parts in cut:
            n = 0
            while n < len(parts) - 1:
                if (parts[n], parts[n + 1]) == best:
                    parts[n : n + 2] = ["".join(best)]
                n += 1
    return merges, cut


def write(folder, name, **content):
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def gpt(tmp_path):
    letters = sorted(set("".join(WORDS)) | set("abcdefghijklmnopqrstuvwxyz.,'!?") | set(HAN[:9]))
    merges, _ = learnt([word.lower() for word in WORDS], 150, 0)
    tokens = [*letters, *(letter + "</w>" for letter in letters), *("".join(pair) for pair in merges), "<unk>"]
    write(tmp_path, "vocab.json", **{token: n for n, token in enumerate(dict.fromkeys(tokens))})
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges), ""]
    (tmp_path / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    write(tmp_path, "tokenizer_config.json", tokenizer_class="OpenAIGPTTokenizer")
    return tmp_path


def test_gpt(gpt):
    ours, theirs = both(gpt, transformers.OpenAIGPTTokenizer)
    assert len(ours) == len(theirs)
    assert ours.get_vocab() == theirs.get_vocab()
    same_everything(ours, theirs, TEXTS + awkward_texts(150, seed=3))
    same_encoding(ours, theirs, "one man", "two men", return_offsets_mapping=True)
    assert ours.tokenize("The unbelievable") == theirs.tokenize("The unbelievable")
    assert ours.tokenize("The")[-1].endswith("</w>")


def test_gpt_is_known_by_its_model_type_and_saved(gpt, tmp_path):
    (gpt / "tokenizer_config.json").unlink()
    write(gpt, "config.json", model_type="openai-gpt")
    ours = load_tokenizer(gpt)
    ours.save(tmp_path / "saved")
    again, there = load_tokenizer(tmp_path / "saved"), transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in TEXTS + awkward_texts(40, seed=4):
        ids = ours.encode(text)
        assert again.encode(text) == there.encode(text) == ids
        assert again.decode(ids) == there.decode(ids) == ours.decode(ids)
    assert pickle.loads(pickle.dumps(ours)).encode("the man") == ours.encode("the man")


def test_a_missing_unknown_token_is_named(gpt):
    write(gpt, "tokenizer_config.json", tokenizer_class="OpenAIGPTTokenizer", unk_token="[UNK]")
    with pytest.raises(TokenizerError, match=r"vocab\.json has no unknown token \[UNK\]"):
        load_tokenizer(gpt)


@pytest.fixture
def ctrl(tmp_path):
    """A vocabulary of what the cut words need: much of what the merges make on the way is not in it."""
    words = [*WORDS, *CONTROL_CODES, *(word.capitalize() for word in WORDS[:60]), "man\n", "end.\n", "of,"]
    merges, cut = learnt(words, 300, 1)
    tokens = ["<unk>", *"abcdefghij", *CONTROL_CODES]
    for parts in cut:
        tokens += [part + "@@" for part in parts[:-1]] + [parts[-1].removesuffix("</w>")]
    write(tmp_path, "vocab.json", **{token: n for n, token in enumerate(dict.fromkeys(tokens))})
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges if "\n" not in "".join(pair)), ""]
    (tmp_path / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    write(tmp_path, "tokenizer_config.json", tokenizer_class="CTRLTokenizer")
    return tmp_path


def ctrl_texts():
    rng = random.Random(5)
    made = ["".join(rng.choice([*WORDS, *CONTROL_CODES, "\n", " ", "  ", "."]) for _ in range(9)) for _ in range(80)]
    return [*TEXTS, *made, *awkward_texts(200, seed=6), "Wikipedia The man\nwalked walking. @@ a@@ b"]


def test_ctrl(ctrl):
    ours, theirs = both(ctrl, transformers.CTRLTokenizer)
    assert len(ours) == len(theirs)
    assert ours.get_vocab() == theirs.get_vocab()
    unknown = known = 0
    for text in ctrl_texts():
        ids = ours.encode(text)
        assert ids == theirs(text)["input_ids"], ascii(text)
        assert ours.convert_ids_to_tokens(ids) == theirs.convert_ids_to_tokens(ids)
        for skip in (False, True):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), ascii(text)
        unknown, known = unknown + ids.count(ours.unk_token_id), known + len(ids)
    assert 0 < unknown < known / 2


def test_ctrls_offsets_are_the_pieces(ctrl):
    tok = load_tokenizer(ctrl)
    for text in ctrl_texts():
        found = tok(text, return_offsets_mapping=True)
        at = 0
        for token, (start, stop) in zip(found.tokens(), found["offset_mapping"], strict=True):
            assert at <= start < stop
            assert text[at:start].strip() == ""  # nothing but space is left out
            if token != "<unk>":
                assert text[start:stop] == token.removesuffix("@@"), ascii(text)
            at = stop
        assert text[at:].strip() == ""


def test_ctrl_keeps_its_files(ctrl, tmp_path):
    tok = load_tokenizer(ctrl)
    tok.add_tokens(["walker9"])
    tok.save(tmp_path / "saved")
    assert not (tmp_path / "saved" / "tokenizer.json").exists()
    again, there = load_tokenizer(tmp_path / "saved"), transformers.CTRLTokenizer.from_pretrained(tmp_path / "saved")
    copy = pickle.loads(pickle.dumps(tok))
    for text in [*ctrl_texts(), "a walker9 man"]:
        ids = tok.encode(text)
        assert again.encode(text) == copy.encode(text) == there(text)["input_ids"] == ids, ascii(text)
    assert tok("a walker9 man", truncation=True, max_length=2)["input_ids"] == tok.encode("a walker9 man")[:2]


def test_control_codes(ctrl):
    tok = load_tokenizer(ctrl)
    codes = control_codes(tok.get_vocab())
    assert set(codes) == set(CONTROL_CODES) == set(transformers.CTRLTokenizer.control_codes)
    assert all(tok.convert_ids_to_tokens(index) == word for word, index in codes.items())


def test_a_damaged_merge_is_named(ctrl):
    (ctrl / "merges.txt").write_text("#version: 0.2\na b c\n", encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"merges\.txt, line 2"):
        load_tokenizer(ctrl)
