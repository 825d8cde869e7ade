"""DeBERTa's older files: vocab.json with merges.txt (v1), spm.model (v2, v3); and XLM's, which are refused."""

import json

import pytest
import sentencepiece
import transformers

from clearhead.errors import TokenizerError
from clearhead.text import load_tokenizer
from tests.text.compare import both, same_encoding, same_everything
from tests.text.samples import awkward_texts
from tests.text.test_sentencepiece import train

TEXTS = ["Hello World, CAFÉ Straße!", " two  spaces ", "b[MASK]", "[CLS] [SEP]x", "[UNK][PAD]"]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


def write(folder, name, **content):
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def v1(trained, tmp_path):
    """GPT-2's files with DeBERTa's special tokens in the vocabulary."""
    vocab = json.loads((trained["bpe"] / "vocab.json").read_text(encoding="utf-8"))
    for token in SPECIAL:
        vocab[token] = len(vocab)
    write(tmp_path, "vocab.json", **vocab)
    (tmp_path / "merges.txt").write_bytes((trained["bpe"] / "merges.txt").read_bytes())
    write(tmp_path, "config.json", model_type="deberta")
    return tmp_path


@pytest.fixture(scope="module")
def model(lines):
    return train(
        lines, model_type="unigram", vocab_size=500, pad_id=0, bos_id=1, eos_id=2, unk_id=3,
        pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]",
    )  # fmt: skip


@pytest.fixture
def v2(model, tmp_path):
    (tmp_path / "spm.model").write_bytes(model)
    write(tmp_path, "config.json", model_type="deberta-v2")
    write(tmp_path, "tokenizer_config.json", do_lower_case=False, vocab_type="spm")
    return tmp_path


@pytest.mark.parametrize("config", [{}, {"add_prefix_space": True}, {"vocab_type": "gpt2", "do_lower_case": False}])
def test_v1(v1, config):
    write(v1, "tokenizer_config.json", **config)
    ours, theirs = both(v1, transformers.DebertaTokenizer)
    assert len(ours) == len(theirs)
    same_everything(ours, theirs, [*TEXTS, *(text for text in awkward_texts(80, seed=41) if " [MASK]" not in text)])


def test_v1_mask_takes_the_space_before_it(v1):
    """As published, and as today's transformers says it does."""
    ours = load_tokenizer(v1)
    a, b = ours("a", add_special_tokens=False)["input_ids"], ours(" b", add_special_tokens=False)["input_ids"]
    assert ours("a [MASK] b", add_special_tokens=False)["input_ids"] == [*a, ours.mask_token_id, *b]


def test_v1_puts_one_separator_between_a_pair(v1):
    """As it was trained; today's transformers puts two, and calls both texts the first."""
    ours = load_tokenizer(v1)
    first, second = ours("one man")["input_ids"], ours("two men")["input_ids"]
    pair = ours("one man", "two men")
    assert pair["input_ids"] == first + second[1:]
    assert pair["token_type_ids"] == [0] * len(first) + [1] * (len(second) - 1)
    ours.save(v1 / "saved")
    assert load_tokenizer(v1 / "saved")("one man", "two men") == pair
    opened = transformers.AutoTokenizer.from_pretrained(v1 / "saved")
    assert opened("one man", "two men")["input_ids"] == pair["input_ids"]


def test_v2_gives_the_ids_of_the_package(v2, model):
    ours, theirs = load_tokenizer(v2), sentencepiece.SentencePieceProcessor(model_proto=model)
    cls, sep = ours.cls_token_id, ours.sep_token_id
    assert (ours.pad_token_id, cls, sep, ours.unk_token_id, ours.mask_token_id) == (0, 1, 2, 3, 500)
    for text in awkward_texts(400, seed=42, accents=False, runs=False):
        if not any(token in text for token in SPECIAL):  # the package reads those as text
            assert ours(text)["input_ids"] == [cls, *theirs.encode(text), sep], ascii(text)


def test_v2_gives_the_ids_of_transformers_where_that_reads_plain_text(v2):
    ours, theirs = both(v2, transformers.DebertaV2Tokenizer)
    assert len(ours) == len(theirs)
    for text in ["Hello World, nice day!", "one man\nand two  men", "a [MASK] b"]:
        assert ours(text)["input_ids"] == theirs(text)["input_ids"]
    same_encoding(ours, theirs, "one man", "two men")


def test_v2_offsets_point_into_the_text(v2):
    ours = load_tokenizer(v2)
    text = "one man and two men"
    found = ours(text, return_offsets_mapping=True)
    ids = found["input_ids"]
    for index, (start, end) in list(zip(ids, found["offset_mapping"], strict=True))[1:-1]:
        assert ours.decode([index]).strip() == text[start:end].strip()


def test_v2_lowers_letters_where_asked(v2, model):
    write(v2, "tokenizer_config.json", do_lower_case=True)
    ours, theirs = load_tokenizer(v2), sentencepiece.SentencePieceProcessor(model_proto=model)
    assert ours("ONE Man", add_special_tokens=False)["input_ids"] == theirs.encode("one man")


def test_v2_refuses_to_cut_at_punctuation(v2):
    write(v2, "tokenizer_config.json", split_by_punct=True)
    with pytest.raises(TokenizerError, match="split_by_punct"):
        load_tokenizer(v2)


def test_xlm_is_refused_with_the_reason(v1):
    write(v1, "config.json", model_type="xlm")
    with pytest.raises(TokenizerError, match="Moses"):
        load_tokenizer(v1)
