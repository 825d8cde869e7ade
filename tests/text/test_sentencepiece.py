"""SentencePiece model files give the ids that the `sentencepiece` package gives."""

import io
import json
import random
import string
import unicodedata

import pytest
import sentencepiece
import transformers

from clearhead.errors import TokenizerError
from clearhead.text import load_tokenizer
from clearhead.text.builders.sentencepiece_model import PieceType, parse, read_sentencepiece
from tests.text.compare import both, same_everything
from tests.text.samples import awkward, awkward_texts

MODELS = {
    "unigram": {"model_type": "unigram", "vocab_size": 500},
    "unigram, bytes": {
        "model_type": "unigram",
        "vocab_size": 700,
        "byte_fallback": True,
        "character_coverage": 0.98,
        "required_chars": "<>x01234A",
    },
    "unigram, case folded": {"model_type": "unigram", "vocab_size": 450, "normalization_rule_name": "nmt_nfkc_cf"},
    "unigram, no prefix": {"model_type": "unigram", "vocab_size": 500, "add_dummy_prefix": False},
    "unigram, own symbols": {"model_type": "unigram", "vocab_size": 500, "user_defined_symbols": ["<sep>", "@@"]},
    "bpe": {"model_type": "bpe", "vocab_size": 500},
    "bpe, like Llama": {
        "model_type": "bpe",
        "vocab_size": 800,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "split_digits": True,
        "character_coverage": 0.98,
    },
    "bpe, like Gemma": {
        "model_type": "bpe",
        "vocab_size": 800,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
        "user_defined_symbols": ["<turn>", "\t\t"],
    },
    "bpe, characters as they are": {"model_type": "bpe", "vocab_size": 500, "normalization_rule_name": "identity"},
    "bpe, across spaces": {"model_type": "bpe", "vocab_size": 500, "split_by_whitespace": False},
}


def train(lines, **options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=2, num_threads=1, **options
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def models(lines):
    return {name: train(lines, **options) for name, options in MODELS.items()}


@pytest.fixture
def opened(models, tmp_path):
    """The same model, opened here and by the package."""

    def make(name):
        (tmp_path / "tokenizer.model").write_bytes(models[name])
        return load_tokenizer(tmp_path), sentencepiece.SentencePieceProcessor(model_proto=models[name])

    return make


@pytest.mark.parametrize("name", MODELS)
def test_ids_agree(opened, name):
    ours, theirs = opened(name)
    # equal scores in runs of one character are a tie, which the package decides by rounding: see the next test
    for text in awkward_texts(1200, seed=21, accents=False, runs="bpe" in name):
        if "a" * 300 not in text:
            assert ours.encode(text, add_special_tokens=False) == theirs.encode(text), ascii(text)


@pytest.mark.parametrize("name", [name for name in MODELS if "unigram" in name])
def test_runs_of_one_character_are_at_worst_a_tie(opened, name):
    ours, theirs = opened(name)
    for text in awkward_texts(400, seed=22, accents=False):
        mine, other = ours.encode(text, add_special_tokens=False), theirs.encode(text)
        if mine != other:
            assert sorted(mine) == sorted(other), ascii(text)


@pytest.mark.parametrize("name", ["unigram", "bpe", "unigram, case folded"])
def test_accents_agree_where_letters_have_them(opened, name):
    """A letter with one accent, written as two characters; other marks after other characters."""
    ours, theirs = opened(name)
    lower = name.endswith("folded")
    texts = [
        "cafe\u0301 nai\u0308ve",
        "\u00a0\ufe0f😀",
        "¼\u0301 2\u0301",
        "♥\ufe0e ①\u20dd",
        "\u05e9\u05c1\u05b8",
        "لَّ",
    ]
    texts += [f"{letter}{accent}" for letter in string.ascii_lowercase for accent in "\u0300\u0301\u0308"]
    texts += [] if lower else [text.upper() for text in texts]
    for text in texts:
        assert ours.encode(text, add_special_tokens=False) == theirs.encode(text), ascii(text)


@pytest.mark.parametrize("name", MODELS)
def test_texts_decode_alike(opened, name):
    ours, theirs = opened(name)
    for text in awkward_texts(200, seed=23):
        ids = theirs.encode(text)
        if theirs.unk_id() not in ids:  # the package writes unknown pieces as a sign of its own
            assert ours.decode(ids) == theirs.decode(ids), ascii(text)


@pytest.mark.parametrize("name", ["unigram, own symbols", "bpe, like Gemma"])
def test_own_symbols_agree(opened, name):
    ours, theirs = opened(name)
    symbols = MODELS[name]["user_defined_symbols"]
    rng = random.Random(5)
    for _ in range(200):
        text = "".join(rng.choice([*symbols, " ", awkward(rng, accents=False, runs=False)]) for _ in range(6))
        assert ours.encode(text, add_special_tokens=False) == theirs.encode(text), ascii(text)


def test_bytes_written_out_are_text(opened):
    ours, theirs = opened("unigram, bytes")
    for text in ("<0x41>", "a <0x0A> b"):
        mine = ours.encode(text, add_special_tokens=False)
        assert mine == theirs.encode(text)
        assert ours.decode(mine) == text


def test_the_file_names_the_special_tokens(opened):
    ours, theirs = opened("unigram")
    assert (ours.bos_token_id, ours.eos_token_id, ours.unk_token_id) == (1, 2, 0)
    assert (theirs.bos_id(), theirs.eos_id(), theirs.unk_id()) == (1, 2, 0)
    assert ours.pad_token is None
    assert ours.vocab_size == len(ours) == theirs.get_piece_size()


def test_bos_and_eos_are_added_where_the_configuration_asks(models, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(models["bpe, like Llama"])
    plain = load_tokenizer(tmp_path).encode("the man")
    config = {"tokenizer_class": "LlamaTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(tmp_path).encode("the man") == [1, *plain]
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(config | {"add_eos_token": True, "add_bos_token": False})
    )
    assert load_tokenizer(tmp_path).encode("the man") == [*plain, 2]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"add_prefix_space": False}))
    assert not load_tokenizer(tmp_path).tokenize("the man")[0].startswith("▁")


@pytest.mark.parametrize("name", ["unigram", "bpe, like Llama", "unigram, bytes"])
def test_saved_it_opens_in_transformers(models, tmp_path, name):
    (tmp_path / "spiece.model").write_bytes(models[name])
    tok = load_tokenizer(tmp_path)
    tok.save(tmp_path / "saved")
    ours, theirs = both(tmp_path / "saved")
    texts = awkward_texts(150, seed=24)
    same_everything(ours, theirs, texts)
    for text in texts:
        assert tok(text) == ours(text)


# ---- the layouts of particular models


def spm(tmp_path, lines, file, config, **options):
    data = train(lines, **options)
    (tmp_path / file).write_bytes(data)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return load_tokenizer(tmp_path), sentencepiece.SentencePieceProcessor(model_proto=data)


def test_t5(tmp_path, lines):
    tok, piece = spm(
        tmp_path,
        lines,
        "spiece.model",
        {"tokenizer_class": "T5Tokenizer", "extra_ids": 5, "model_max_length": 512},
        model_type="unigram",
        vocab_size=400,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
    )
    text = "The man walked over there."
    assert tok.encode(text) == [*piece.encode(text), 1]
    assert tok.encode(text, "so") == [*piece.encode(text), 1, *piece.encode("so"), 1]
    assert (tok.pad_token_id, tok.eos_token_id, tok.unk_token_id, tok.bos_token) == (0, 1, 2, None)
    assert tok.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_4>"]) == [404, 400]
    theirs = transformers.T5Tokenizer.from_pretrained(tmp_path)
    assert sorted(tok.all_special_tokens) == sorted(theirs.all_special_tokens)
    for text in ("The man walked over there.", "years <extra_id_0> and <extra_id_1>", "在有他这 no"):
        assert tok.encode(text) == theirs.encode(text)


def test_albert(tmp_path, lines):
    tok, piece = spm(
        tmp_path,
        [line.lower() for line in lines],
        "spiece.model",
        {"tokenizer_class": "AlbertTokenizer"},
        model_type="unigram",
        vocab_size=400,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    )
    first, last = piece.piece_to_id("[CLS]"), piece.piece_to_id("[SEP]")
    assert tok.encode("The Café") == [first, *piece.encode("the cafe"), last]
    pair = tok("the", "man")
    assert pair["input_ids"] == [first, *piece.encode("the"), last, *piece.encode("man"), last]
    assert pair["token_type_ids"] == [0] * (2 + len(piece.encode("the"))) + [1] * (1 + len(piece.encode("man")))
    assert tok.mask_token_id == piece.piece_to_id("[MASK]")


def test_big_bird(tmp_path, lines):
    tok, piece = spm(
        tmp_path,
        lines,
        "spiece.model",
        {"tokenizer_class": "BigBirdTokenizer"},
        model_type="unigram",
        vocab_size=500,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=100,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
    )
    first, last = piece.piece_to_id("[CLS]"), piece.piece_to_id("[SEP]")
    rng = random.Random(5)
    for _ in range(200):
        text = awkward(rng, accents=False, runs=False)
        encoded = tok(text, return_offsets_mapping=True)
        assert encoded["input_ids"] == [first, *piece.encode(text), last], ascii(text)
        assert all(0 <= a <= b <= len(text) for a, b in encoded["offset_mapping"])
    assert list(tok("the")) == ["input_ids", "attention_mask"]
    pair = tok("the", "man", return_token_type_ids=True)
    assert pair["input_ids"] == [first, *piece.encode("the"), last, *piece.encode("man"), last]
    assert pair["token_type_ids"] == [0] * (2 + len(piece.encode("the"))) + [1] * (1 + len(piece.encode("man")))
    assert (tok.pad_token_id, tok.eos_token_id, tok.bos_token_id, tok.unk_token_id) == (0, 1, 2, 100)
    assert tok.encode("the [MASK] man") == tok.encode("the[MASK] man")  # it takes the space before it
    theirs = transformers.BigBirdTokenizer.from_pretrained(tmp_path)
    assert sorted(tok.all_special_tokens) == sorted(theirs.all_special_tokens)
    for text in ("The man walked over there.", "years", "no 在有他这 more"):
        assert tok.encode(text) == theirs.encode(text), text
        assert tok.encode(text, "so") == theirs.encode(text, "so")


def test_xlnet(tmp_path, lines):
    tok, piece = spm(
        tmp_path,
        lines,
        "spiece.model",
        {"tokenizer_class": "XLNetTokenizer"},
        model_type="unigram",
        vocab_size=500,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=5,
        control_symbols=["<cls>", "<sep>", "<mask>", "<eod>", "<eop>"],
    )
    first, last = piece.piece_to_id("<cls>"), piece.piece_to_id("<sep>")
    rng = random.Random(6)
    for _ in range(200):
        text = awkward(rng, accents=False, runs=False).replace("``", "").replace("''", "")
        encoded = tok(text, return_offsets_mapping=True)
        plain = "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c)[0] != "M")
        assert encoded["input_ids"] == [*piece.encode(plain), last, first], ascii(text)
        assert all(0 <= a <= b <= len(text) for a, b in encoded["offset_mapping"])
    theirs = transformers.XLNetTokenizer.from_pretrained(tmp_path)
    assert sorted(tok.all_special_tokens) == sorted(theirs.all_special_tokens)
    theirs._pad_token_type_id = 3  # its class says so, but the general one resets it
    assert (tok.padding_side, tok.pad_token_type_id) == (theirs.padding_side, 3) == ("left", 3)
    for text in ("The man walked over there.", "years", "no 在有他这 more", "``The Café'' <mask>, no"):
        assert tok.encode(text) == theirs.encode(text), text
    tok.save(tmp_path / "saved")
    for ours in (tok, load_tokenizer(tmp_path / "saved")):
        for given in ("the", "the man walked"), [("the", "so"), ("the man walked", "so")]:
            mine, other = ours(list(given), padding=True), theirs(list(given), padding=True, return_token_type_ids=True)
            assert dict(mine) == dict(other)
            assert mine["token_type_ids"][0][0] == 3
            assert mine["token_type_ids"][0][-1] == 2
            assert ours.pad([{k: v[0] for k, v in mine.items()}], max_length=9, padding="max_length") == theirs.pad(
                [{k: v[0] for k, v in mine.items()}], max_length=9, padding="max_length"
            )
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "saved").padding_side == "left"


@pytest.mark.parametrize("file", ["vocab.txt", "vocab.bin", "vocab.pkl"])
def test_transformer_xl_has_no_words_to_read(tmp_path, file):
    (tmp_path / file).write_text("<unk>\nthe\n")
    (tmp_path / "config.json").write_text('{"model_type": "transfo-xl"}')
    with pytest.raises(TokenizerError, match="pickle, which is never opened"):
        load_tokenizer(tmp_path)


def test_bigbird_pegasus_keeps_the_ids_of_the_file(tmp_path, lines):
    config = {"tokenizer_class": "PegasusTokenizer", "offset": 0, "mask_token": "[MASK]", "mask_token_sent": None}
    tok, piece = spm(
        tmp_path, lines, "spiece.model", config, model_type="unigram", vocab_size=500,
        pad_id=0, eos_id=1, bos_id=2, unk_id=100, control_symbols=["[MASK]"],
    )  # fmt: skip
    text = "The man walked 在有他这 over there 😀."
    assert tok.encode(text) == [*piece.encode(text), 1]
    assert (tok.mask_token_id, tok.unk_token_id, len(tok)) == (piece.piece_to_id("[MASK]"), 100, 500)


def test_xlm_roberta_has_ids_of_its_own(tmp_path, lines):
    tok, piece = spm(
        tmp_path, lines, "sentencepiece.bpe.model", {"tokenizer_class": "XLMRobertaTokenizer"},
        model_type="unigram", vocab_size=400,
    )  # fmt: skip
    text = "The man walked 在有他这 over there 😀."
    shifted = [3 if index == 0 else index + 1 for index in piece.encode(text)]
    assert tok.encode(text) == [0, *shifted, 2]
    assert tok.encode("the", "man") == [0, piece.piece_to_id("▁the") + 1, 2, 2, piece.piece_to_id("▁man") + 1, 2]
    assert (tok.pad_token_id, tok.mask_token_id, len(tok)) == (1, 401, 402)
    assert tok.encode("the <mask>") == tok.encode("the<mask>")


@pytest.mark.filterwarnings("ignore:Recommended")
def test_marian_keeps_ids_in_vocab_json(tmp_path, lines):
    config = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "zh"}
    data = train(lines, model_type="unigram", vocab_size=400)
    pieces = [piece.text for piece in parse(data).pieces[3:]]
    random.Random(3).shuffle(pieces)
    ids = {text: n for n, text in enumerate(["</s>", "<unk>", *pieces, ">>fra<<", "▁seulement", "<pad>"])}
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "vocab.json").write_text(json.dumps(ids))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tok, theirs = load_tokenizer(tmp_path), transformers.MarianTokenizer.from_pretrained(tmp_path)
    for text in ("The man walked over there.", ">>fra<< no more", "years 在有他这 no", "😀 the"):
        assert tok.encode(text) == theirs.encode(text), text
    assert (tok.pad_token_id, tok.eos_token_id) == (theirs.pad_token_id, theirs.eos_token_id)
    assert tok.decode(tok.encode("The man walked"), skip_special_tokens=True) == "The man walked"


def test_a_layout_not_known_here_is_refused(models, tmp_path):
    (tmp_path / "spiece.model").write_bytes(models["unigram"])
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "CamembertTokenizer"}')
    with pytest.raises(TokenizerError, match="CamembertTokenizer"):
        load_tokenizer(tmp_path)


# ---- the reader


def test_the_reader_reads_what_the_package_wrote(models):
    for data in models.values():
        model, theirs = parse(data), sentencepiece.SentencePieceProcessor(model_proto=data)
        assert [piece.text for piece in model.pieces] == [theirs.id_to_piece(n) for n in range(theirs.get_piece_size())]
        assert [piece.score for piece in model.pieces] == [theirs.get_score(n) for n in range(theirs.get_piece_size())]
        assert [n for n, piece in enumerate(model.pieces) if piece.type is PieceType.BYTE] == [
            n for n in range(theirs.get_piece_size()) if theirs.is_byte(n)
        ]
        assert (model.unk_id, model.bos_id, model.eos_id, model.pad_id) == (
            theirs.unk_id(),
            theirs.bos_id(),
            theirs.eos_id(),
            theirs.pad_id(),
        )


def test_damage_never_escapes_as_anything_but_a_tokenizer_error(models, tmp_path):
    rng = random.Random(0)
    path = tmp_path / "tokenizer.model"
    data, refused = models["bpe"], 0
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 5)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        path.write_bytes(bytes(broken[: rng.choice([len(broken), rng.randrange(len(broken))])]))
        try:
            read_sentencepiece(path)
        except TokenizerError as error:
            refused += 1
            assert "tokenizer.model" in str(error)
    assert refused > 50


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no pieces"),
        (b"IQ== 0\nIg== 1\n", "damaged"),  # another format that is also called tokenizer.model
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "middle of a field"),
        (b"\x80" * 20, "does not end"),
        (b"\x0a", "middle of a number"),
        (b"\x00\x00", "number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x08\x01", "bytes were expected"),
        (b"\x0a\x03\x0a\x01\xff", "UTF-8"),
        (b"\x0a\x02\x18\x09", "unknown type"),
        (b"\x0a\x02\x10\x01", "bytes were expected"),
        (b"\x0a\x03\x0a\x01a", "no unknown piece"),
        (b"\x0a\x03\x0a\x01a" * 2, "twice"),
        (b"\x0a\x02\x18\x02", "empty"),
        (b"\x0a\x0a\x0a\x01a\x15\x00\x00\xc0\x7f\x18\x02", "not a number"),
    ],
)
def test_each_kind_of_damage_is_named(tmp_path, data, words):
    (tmp_path / "tokenizer.model").write_bytes(data)
    with pytest.raises(TokenizerError, match=words):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "options", [{"model_type": "char"}, {"model_type": "word"}, {"treat_whitespace_as_suffix": True}]
)
def test_models_of_another_kind_are_refused(tmp_path, lines, options):
    data = train(
        lines, vocab_size=80 if options.get("model_type") == "char" else 300, hard_vocab_limit=False, **options
    )
    (tmp_path / "tokenizer.model").write_bytes(data)
    with pytest.raises(TokenizerError, match=r"not supported|only unigram and BPE"):
        load_tokenizer(tmp_path)


def test_a_damaged_character_map_is_refused(models, tmp_path):
    model = bytearray(models["unigram"])
    charsmap = parse(bytes(model)).charsmap
    place = bytes(model).index(charsmap)
    model[place : place + 4] = b"\xff\xff\xff\x7f"
    (tmp_path / "tokenizer.model").write_bytes(bytes(model))
    with pytest.raises(TokenizerError, match=r"tokenizer\.model cannot be used"):
        load_tokenizer(tmp_path)
