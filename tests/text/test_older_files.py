"""Folders from before tokenizer.json: vocab.txt, and vocab.json with merges.txt."""

import json
import shutil

import pytest
import transformers

from clearhead.errors import TokenizerError
from clearhead.text import load_tokenizer
from tests.text.compare import both, same_encoding, same_everything
from tests.text.samples import awkward_texts

TEXTS = [
    "Hello World, CAFÉ Straße!",
    " two  spaces ",
    "漢字 mixed 汉字",
    "[MASK] [SEP]x",
    "<mask> a</s>",
    "<|endoftext|>x",
]


@pytest.fixture
def vocab_txt(trained, tmp_path):
    shutil.copy(trained["wordpiece"] / "vocab.txt", tmp_path)
    return tmp_path


@pytest.fixture
def merges_txt(trained, tmp_path):
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(trained["bpe"] / name, tmp_path)
    return tmp_path


def write(folder, name, **content):
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False},
        {"cls_token": "the", "sep_token": "[MASK]", "model_max_length": 20},
        {"pad_token": "<brand new>"},
        {"split_special_tokens": True},
        {"added_tokens_decoder": {"500": {"content": "Zebra", "special": False, "normalized": True}}},
    ],
)
def test_bert(vocab_txt, config):
    write(vocab_txt, "tokenizer_config.json", **config)
    ours, theirs = both(vocab_txt, transformers.BertTokenizer)
    assert len(ours) == len(theirs)
    same_everything(ours, theirs, [*TEXTS, "a zebra Zebra", *awkward_texts(80, seed=11)])
    same_encoding(ours, theirs, "one man", "two men", return_offsets_mapping=True)


RELATIVES = {
    # class -> (reference, the model type that says the same, what a model is given)
    "ElectraTokenizer": (transformers.ElectraTokenizer, "electra", ["input_ids", "token_type_ids", "attention_mask"]),
    "DistilBertTokenizer": (transformers.DistilBertTokenizer, "distilbert", ["input_ids", "attention_mask"]),
}


@pytest.mark.parametrize("said_in", ["class", "fast class", "model type"])
@pytest.mark.parametrize("name", RELATIVES)
@pytest.mark.parametrize(
    "config",
    [
        {"do_lower_case": True, "model_max_length": 24},
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
        {"unk_token": "[MASK]", "mask_token": "[UNK]", "padding_side": "left"},
    ],
    ids=str,
)
def test_berts_relatives(vocab_txt, config, name, said_in):
    """ELECTRA and DistilBERT, published as vocab.txt with a small tokenizer_config.json."""
    reference, model_type, inputs = RELATIVES[name]
    named = {"class": {"tokenizer_class": name}, "fast class": {"tokenizer_class": f"{name}Fast"}}.get(said_in, {})
    write(vocab_txt, "tokenizer_config.json", **config, **named)
    write(vocab_txt, "config.json", model_type=model_type)
    ours, theirs = both(vocab_txt, reference)
    assert len(ours) == len(theirs)
    assert list(ours("one")) == inputs
    assert ours.special_tokens_map == theirs.special_tokens_map
    words = [
        "Éléphant ÅNGSTRÖM naïve café cafe\u0301 ﬁ",
        "我在有他这hello漢字",
        "[MASK] [mask] a[SEP]b",
        "ｈｅｌｌｏ 哈\u0301",
    ]
    same_everything(ours, theirs, [*TEXTS, *words, *awkward_texts(60, seed=21)])
    for pair in (("one man", "two 我在 men"), ("the café CAFÉ", "é")):
        same_encoding(ours, theirs, *pair, return_offsets_mapping=True, truncation=True, max_length=8)
    same_encoding(ours, theirs, awkward_texts(20, seed=22), padding=True, truncation=True, max_length=12)


def test_the_published_bert_vocabulary(minilm, tmp_path):
    shutil.copy(minilm / "vocab.txt", tmp_path)
    ours = load_tokenizer(tmp_path)
    whole = load_tokenizer(minilm)
    assert ours.get_vocab() == whole.get_vocab()
    for text in TEXTS + awkward_texts(200, seed=12):
        assert ours(text, return_offsets_mapping=True) == whole(text, return_offsets_mapping=True)
        assert ours.decode(ours.encode(text)) == whole.decode(whole.encode(text))


def test_windows_line_ends(vocab_txt, trained):
    path = vocab_txt / "vocab.txt"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_tokenizer(vocab_txt).get_vocab() == load_tokenizer(trained["wordpiece"]).get_vocab()


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"add_prefix_space": True},
        {"add_bos_token": True},
        {"add_bos_token": True, "add_eos_token": True},
        {"pad_token": "<pad>", "eos_token": "<pad>", "add_eos_token": True},
    ],
)
def test_gpt2(merges_txt, config):
    write(merges_txt, "tokenizer_config.json", **config)
    ours, theirs = both(merges_txt, transformers.GPT2Tokenizer)
    assert len(ours) == len(theirs)
    same_everything(ours, theirs, TEXTS + awkward_texts(80, seed=13))
    same_encoding(ours, theirs, "one man", "two men", return_offsets_mapping=True, return_token_type_ids=True)


@pytest.fixture
def roberta(merges_txt):
    """The same merges with RoBERTa's special tokens in the vocabulary."""
    vocab = json.loads((merges_txt / "vocab.json").read_text(encoding="utf-8"))
    for token in ("<s>", "</s>", "<unk>", "<pad>", "<mask>"):
        vocab[token] = len(vocab)
    (merges_txt / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    return merges_txt


@pytest.mark.parametrize("said_in", ["class", "fast class", "model type", "model class"])
def test_roberta_is_recognised(roberta, said_in):
    if said_in == "class":
        write(roberta, "tokenizer_config.json", tokenizer_class="RobertaTokenizer")
    elif said_in == "fast class":
        write(roberta, "tokenizer_config.json", tokenizer_class="BartTokenizerFast")
    elif said_in == "model class":
        write(roberta, "config.json", model_type="other", tokenizer_class="RobertaTokenizer")
    else:
        write(roberta, "config.json", model_type="roberta")
    tok = load_tokenizer(roberta)
    ids = tok.encode("one", "two")
    shown = tok.convert_ids_to_tokens(ids)
    assert (shown[0], shown[-1]) == ("<s>", "</s>")
    assert shown.count("</s>") == 3
    assert (tok.mask_token, tok.pad_token, tok.cls_token) == ("<mask>", "<pad>", "<s>")


@pytest.mark.parametrize("config", [{}, {"add_prefix_space": True}, {"trim_offsets": False}])
def test_roberta_agrees_with_transformers(roberta, config):
    write(roberta, "tokenizer_config.json", tokenizer_class="RobertaTokenizer", **config)
    ours, theirs = both(roberta, transformers.RobertaTokenizer)
    assert len(ours) == len(theirs)
    same_everything(ours, theirs, [text for text in TEXTS + awkward_texts(80, seed=14) if "<mask>" not in text])
    same_encoding(ours, theirs, "one man", "two men", return_offsets_mapping=True)


def test_robertas_mask_takes_the_space_before_it(roberta):
    """As in the published tokenizer.json; `transformers` 5 forgets it when it builds from the older files."""
    write(roberta, "tokenizer_config.json", tokenizer_class="RobertaTokenizer")
    tok = load_tokenizer(roberta)
    assert tok.encode("one <mask>") == tok.encode("one<mask>")


@pytest.fixture
def mpnet(vocab_txt):
    """BERT's vocabulary between the tokens that fairseq puts first and last."""
    path = vocab_txt / "vocab.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(["<s>", "<pad>", "</s>", "<unk>", *lines, "<mask>"]) + "\n", encoding="utf-8")
    write(vocab_txt, "config.json", model_type="mpnet")
    return vocab_txt


MPNET_TEXTS = ["one <mask> two<mask>", "<MASK> <s> a</S>", "[UNK] [unk] <unk> <pad>", "Ġ ġ Ġword"]


@pytest.mark.parametrize(
    "config",
    [
        {"model_max_length": 512, "do_lower_case": True},  # as mpnet-base was published
        {"tokenizer_class": "MPNetTokenizerFast"},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False},
        {"cls_token": "the", "sep_token": "<mask>", "unk_token": "<unk>"},
        {"pad_token": "<brand new>"},
        {"mask_token": {"content": "<mask>", "lstrip": False, "normalized": False, "__type": "AddedToken"}},
    ],
)
def test_mpnet(mpnet, config, tmp_path):
    write(mpnet, "tokenizer_config.json", **config)
    ours, theirs = both(mpnet)
    assert isinstance(theirs, transformers.MPNetTokenizer)
    texts = [*TEXTS, *MPNET_TEXTS, *awkward_texts(80, seed=15)]
    for name in ("from older files", "saved here", "saved there"):
        assert len(ours) == len(theirs), name
        same_everything(ours, theirs, texts)
        same_encoding(ours, theirs, "one man", "two men", return_offsets_mapping=True, return_token_type_ids=True)
        assert ours.backend.get_added_tokens_decoder() == theirs.added_tokens_decoder  # with what they do to spaces
        folder = tmp_path / name
        (theirs.save_pretrained if name == "saved here" else ours.save)(folder)
        ours, theirs = both(folder)
        assert isinstance(theirs, transformers.MPNetTokenizer)


@pytest.mark.parametrize(
    "config", [{"do_lower_case": False}, {"strip_accents": False, "tokenize_chinese_chars": False}]
)
def test_mpnets_configuration_overrules_its_tokenizer_json(mpnet, config):
    load_tokenizer(mpnet).save(mpnet)
    said = json.loads((mpnet / "tokenizer_config.json").read_text(encoding="utf-8"))
    write(mpnet, "tokenizer_config.json", **{**said, **config})
    ours, theirs = both(mpnet)
    same_everything(ours, theirs, [*TEXTS, *MPNET_TEXTS, *awkward_texts(80, seed=16)])


def test_added_tokens_json_continues_the_vocabulary(merges_txt):
    write(merges_txt, "added_tokens.json", extra_word=700, **{"<u>": 701})
    write(merges_txt, "special_tokens_map.json", additional_special_tokens=["<u>"], pad_token="<u>")
    tok = load_tokenizer(merges_txt)
    assert tok.convert_tokens_to_ids(["extra_word", "<u>"]) == [700, 701]
    assert tok.pad_token_id == 701
    assert tok.decode(tok.encode("the<u>man"), skip_special_tokens=True) == "theman"


# ---- what can be wrong


def test_a_kind_that_cannot_be_rebuilt_is_refused(merges_txt):
    write(merges_txt, "tokenizer_config.json", tokenizer_class="WhisperTokenizer")
    with pytest.raises(TokenizerError, match=r"WhisperTokenizer.*Open it once with transformers"):
        load_tokenizer(merges_txt)
    write(merges_txt, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    assert load_tokenizer(merges_txt).eos_token == "<|endoftext|>"


def test_added_ids_must_fit(merges_txt):
    write(merges_txt, "added_tokens.json", word=9000)
    with pytest.raises(TokenizerError, match="should have id 9000"):
        load_tokenizer(merges_txt)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("vocab.txt", b"", "is empty"),
        ("vocab.txt", b"a\nb\n", r"no line for the unknown token \[UNK\]"),
        ("vocab.txt", b"[UNK]\n\xff\xfe\n", r"not UTF-8: byte 6 \(line 2\)"),
        ("vocab.json", b"{}", "is empty"),
        ("vocab.json", b'{"a": 0, "b": 0}', "same id"),
        ("vocab.json", b'{"a": "x"}', "the id 'x'"),
        ("vocab.json", b'{"a": -1}', "the id -1"),
        ("vocab.json", b'["a"]', "an object is needed"),
        ("merges.txt", b"#version: 0.2\none two three\n", r"line 2.*two tokens"),
        ("merges.txt", b"zq\n", r"line 1.*two tokens"),
        ("merges.txt", "ж щ\n".encode(), r"line 1.*not in vocab\.json"),
    ],
)
def test_damaged_files_are_named(trained, tmp_path, name, content, words):
    if name != "vocab.txt":
        for other in ("vocab.json", "merges.txt"):
            shutil.copy(trained["bpe"] / other, tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TokenizerError, match=words) as caught:
        load_tokenizer(tmp_path)
    assert name in str(caught.value)


def test_roberta_needs_its_tokens(merges_txt):
    write(merges_txt, "tokenizer_config.json", tokenizer_class="RobertaTokenizer")
    with pytest.raises(TokenizerError, match="cls_token"):
        load_tokenizer(merges_txt)
