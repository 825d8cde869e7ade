"""Tokenizers of translators and summarisers: language codes, two SentencePiece models, ids of their own."""

import json
import pickle
import random

import pytest
import sentencepiece
import transformers

from clearhead.errors import InputError, TokenizerError
from clearhead.text import TextStream, load_tokenizer
from clearhead.text.builders.families import by_name
from clearhead.text.builders.sentencepiece_model import parse
from tests.text.samples import awkward
from tests.text.test_sentencepiece import train

PLAIN = ("The man walked over there.", "years", "no 在有他这 more", "unbelievable attention", "so so so")


@pytest.fixture(scope="module")
def unigram(lines):
    return train(lines, model_type="unigram", vocab_size=400)


@pytest.fixture(scope="module")
def bpe(lines):
    return train(lines, model_type="bpe", vocab_size=400)


def folder(where, files: dict, config: dict):
    for name, data in files.items():
        (where / name).write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    (where / "tokenizer_config.json").write_text(json.dumps(config))
    return where


def same_targets(tok, theirs, sources: list[str], targets: list[str], padded: bool = True) -> None:
    """text_target: the ids of the target as `labels`, whatever the options of the call."""
    padding = {"padding": True}, {"padding": "max_length", "max_length": 9, "truncation": True}
    for options in ({}, {"truncation": True, "max_length": 3}, *padding[: 2 if padded else 0]):
        wanted = theirs(sources, text_target=targets, **options)
        got = tok(sources, text_target=targets, **options)
        assert dict(got) == dict(wanted)
        assert dict(tok(text_target=targets, **options)) == dict(theirs(text_target=targets, **options))
    one = tok(sources[0], text_target=targets[0])
    assert dict(one) == dict(theirs(sources[0], text_target=targets[0]))
    assert one.tokens() == tok(sources[0]).tokens()  # the encoding is the source's
    tensors = tok(sources, text_target=targets, padding=True, return_tensors="pt")
    assert tensors["labels"].tolist() == tok(text_target=targets, padding=True)["input_ids"]


FAIRSEQ = {
    # class -> (kind of model, reference class, a language, another, where the code stands)
    "MBartTokenizer": ("unigram", transformers.MBartTokenizer, "en_XX", "ro_RO", "last"),
    "MBart50Tokenizer": ("unigram", transformers.MBart50Tokenizer, "en_XX", "sl_SI", "first"),
    "NllbTokenizer": ("bpe", transformers.NllbTokenizer, "eng_Latn", "zul_Latn", "first"),
}


def nllb_tokens() -> dict:
    """Published folders list the languages and their ids, and the reference needs them to."""
    codes = list(by_name("nllb").languages({}).codes)
    added = {401 + n: {"content": token, "special": True} for n, token in enumerate([*codes, "<mask>"])}
    added[603]["lstrip"] = True
    return {"additional_special_tokens": codes, "added_tokens_decoder": added}


@pytest.mark.parametrize("name", FAIRSEQ)
def test_languages_on_fairseq_ids(name, tmp_path, request):
    kind, reference, src, tgt, where = FAIRSEQ[name]
    data = request.getfixturevalue(kind)
    config = {"tokenizer_class": name}
    if name == "NllbTokenizer":
        config |= nllb_tokens()
    folder(tmp_path, {"sentencepiece.bpe.model": data}, config)
    tok, theirs = load_tokenizer(tmp_path), reference.from_pretrained(tmp_path)
    piece = sentencepiece.SentencePieceProcessor(model_proto=data)
    codes = by_name(tok.config["clearhead_family"]).languages({}).codes
    # four special tokens, the pieces without the file's own three, the codes, the mask
    assert tok.lang_code_to_id == {code: 401 + n for n, code in enumerate(codes)}
    assert (tok.mask_token_id, len(tok)) == (401 + len(codes), 402 + len(codes))
    assert set(codes) <= set(tok.all_special_tokens)

    rng = random.Random(name)
    for language in (src, tgt):
        tok.src_lang = theirs.src_lang = language
        code = tok.lang_code_to_id[language]
        for _ in range(100):
            text = awkward(rng, accents=False, runs=False)
            body = [3 if index == 0 else index + 1 for index in piece.encode(text)]
            encoded = tok(text, return_offsets_mapping=True)
            assert encoded["input_ids"] == ([code, *body, 2] if where == "first" else [*body, 2, code]), ascii(text)
            assert all(0 <= a <= b <= len(text) for a, b in encoded["offset_mapping"])
        for text in PLAIN:
            assert tok.encode(text) == theirs.encode(text), text
            assert tok.encode(text, "so") == theirs.encode(text, "so")
            assert tok.decode(tok.encode(text), skip_special_tokens=True) == text

    tok.src_lang, tok.tgt_lang = src, tgt
    theirs.src_lang, theirs.tgt_lang = src, tgt
    for text in PLAIN:
        assert tok.target.encode(text) == theirs(text_target=text)["input_ids"]
    same_targets(tok, theirs, list(PLAIN), list(reversed(PLAIN)))
    assert tok.encode("so") == theirs.encode("so")  # looking at the target has not changed the source
    with pytest.raises(InputError, match="no language"):
        tok.src_lang = "en"
    assert tok.src_lang == src


def test_nllb_as_it_was_first_published(tmp_path, bpe):
    config = {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": True, **nllb_tokens()}
    folder(tmp_path, {"sentencepiece.bpe.model": bpe}, config)
    tok, theirs = load_tokenizer(tmp_path), transformers.NllbTokenizer.from_pretrained(tmp_path)
    assert tok.encode("the man") == theirs.encode("the man")
    assert tok.encode("the man")[-2:] == [2, tok.lang_code_to_id["eng_Latn"]]


@pytest.mark.parametrize("codes", ["m2m100", "wmt21"])
def test_m2m_100_keeps_ids_in_vocab_json(tmp_path, bpe, codes):
    pieces = [piece.text for piece in parse(bpe).pieces[3:]]
    random.Random(4).shuffle(pieces)
    ids = {text: n for n, text in enumerate(["<s>", "<pad>", "</s>", "<unk>", *pieces])}
    config = {"tokenizer_class": "M2M100Tokenizer", "language_codes": codes, "src_lang": "de"}
    folder(tmp_path, {"sentencepiece.bpe.model": bpe, "vocab.json": ids}, config)
    tok, theirs = load_tokenizer(tmp_path), transformers.M2M100Tokenizer.from_pretrained(tmp_path)
    assert tok.lang_code_to_id == theirs.lang_code_to_id
    assert tok.src_lang == "de"
    rng = random.Random(7)
    for language in ("de", "zh"):
        tok.src_lang = theirs.src_lang = language
        for text in (*PLAIN, *(awkward(rng, accents=False, runs=False).strip() for _ in range(100))):
            assert tok.encode(text) == theirs.encode(text), ascii(text)
    tok.tgt_lang = theirs.tgt_lang = "ru"
    assert tok.target.encode("the man") == theirs(text_target="the man")["input_ids"]
    same_targets(tok, theirs, list(PLAIN), list(reversed(PLAIN)))
    assert tok.decode(tok.encode("The man walked"), skip_special_tokens=True) == "The man walked"
    assert {f"__{code}__" for code in theirs.lang_code_to_id} <= set(tok.all_special_tokens)
    tok.save(tmp_path / "saved")
    ours, theirs = load_tokenizer(tmp_path / "saved"), transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert ours.encode("The man walked") == theirs.encode("The man walked") == tok.encode("The man walked")
    assert theirs.decode(tok.encode("The man walked"), skip_special_tokens=True) == "The man walked"


def test_languages_survive_saving(tmp_path, unigram):
    (tmp_path / "a").mkdir()
    folder(tmp_path / "a", {"sentencepiece.bpe.model": unigram}, {"tokenizer_class": "MBart50Tokenizer"})
    tok = load_tokenizer(tmp_path / "a")
    tok.src_lang, tok.tgt_lang = "fi_FI", "sl_SI"
    tok.save(tmp_path / "b")
    again = load_tokenizer(tmp_path / "b")
    assert (again.src_lang, again.tgt_lang) == ("fi_FI", "sl_SI")
    for text in PLAIN:
        assert again.encode(text) == tok.encode(text)
        assert again.target.encode(text) == tok.target.encode(text)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "b").encode("the man") == tok.encode("the man")


def test_a_target_language_that_the_model_does_not_know_is_named(tmp_path, unigram, caplog):
    config = {"tokenizer_class": "MBart50Tokenizer", "src_lang": "fi_FI", "tgt_lang": "kan_Deva"}
    folder(tmp_path, {"sentencepiece.bpe.model": unigram}, config)
    tok = load_tokenizer(tmp_path)
    assert (tok.src_lang, tok.tgt_lang) == ("fi_FI", None)
    assert "'kan_Deva', is no language" in caplog.text


def test_no_languages(tmp_path, unigram):
    (tmp_path / "spiece.model").write_bytes(unigram)
    tok = load_tokenizer(tmp_path)
    assert (tok.src_lang, tok.tgt_lang, tok.target) == (None, None, tok)
    assert tok("so", text_target="years")["labels"] == tok.encode("years")
    with pytest.raises(InputError, match="must be a string"):
        tok()
    with pytest.raises(InputError, match="no languages"):
        tok.src_lang = "en"


def test_tokenizer_json_of_a_translator_gets_the_language_asked_for(tmp_path, unigram):
    (tmp_path / "a").mkdir()
    folder(tmp_path / "a", {"sentencepiece.bpe.model": unigram}, {"tokenizer_class": "MBartTokenizer"})
    transformers.MBartTokenizer.from_pretrained(tmp_path / "a").save_pretrained(tmp_path / "b")
    config = json.loads((tmp_path / "b" / "tokenizer_config.json").read_text())
    (tmp_path / "b" / "tokenizer_config.json").write_text(json.dumps({**config, "src_lang": "tr_TR"}))
    tok, theirs = load_tokenizer(tmp_path / "b"), transformers.MBartTokenizer.from_pretrained(tmp_path / "b")
    assert tok.src_lang == theirs.src_lang == "tr_TR"
    for text in PLAIN:
        assert tok.encode(text) == theirs.encode(text)


@pytest.mark.filterwarnings("ignore:Recommended")
@pytest.mark.parametrize("separate", [False, True])
def test_marian_has_a_model_for_each_language(tmp_path, lines, separate):
    (tmp_path / "a").mkdir()
    source = train(lines, model_type="unigram", vocab_size=400)
    target = train([line[::-1] for line in lines], model_type="unigram", vocab_size=350)
    left, right = ([piece.text for piece in parse(data).pieces[3:]] for data in (source, target))
    words = left if separate else list(dict.fromkeys([*left, *right]))
    ids = {text: n for n, text in enumerate(["</s>", "<unk>", *words, "<pad>"])}
    files = {"source.spm": source, "target.spm": target, "vocab.json": ids}
    config = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "x"}
    if separate:
        files["target_vocab.json"] = {text: n for n, text in enumerate(["</s>", "<unk>", *right, "<pad>"])}
        config["separate_vocabs"] = True
    folder(tmp_path / "a", files, config)
    tok, theirs = load_tokenizer(tmp_path / "a"), transformers.MarianTokenizer.from_pretrained(tmp_path / "a")
    assert tok.target is not tok
    tok.save(tmp_path / "b")
    again = load_tokenizer(tmp_path / "b")
    for text in PLAIN:
        assert tok.encode(text) == again.encode(text) == theirs.encode(text)
        back = text[::-1]
        wanted = theirs(text_target=back)["input_ids"]
        assert tok.target.encode(back) == again.target.encode(back) == wanted
        known = [index for index in wanted if index != 1]  # of what is unknown nothing is left to show
        assert tok.target.decode(known, skip_special_tokens=True) == theirs.decode(known, skip_special_tokens=True)
    # with two vocabularies the reference pads the target with the source's id, which the target does not have
    same_targets(tok, theirs, list(PLAIN), [text[::-1] for text in reversed(PLAIN)], padded=not separate)
    padded = tok(text_target=list(PLAIN), padding=True)["input_ids"]
    assert {row[-1] for row in padded} == {0, tok.target.pad_token_id}


def test_pegasus_has_ids_of_its_own(tmp_path, lines):
    data = train(lines, model_type="unigram", vocab_size=400, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    folder(tmp_path, {"spiece.model": data}, {"tokenizer_class": "PegasusTokenizer"})
    tok, piece = load_tokenizer(tmp_path), sentencepiece.SentencePieceProcessor(model_proto=data)
    theirs = transformers.PegasusTokenizer.from_pretrained(tmp_path)
    rng = random.Random(11)
    for _ in range(200):
        text = awkward(rng, accents=False, runs=False)
        encoded = tok(text, return_offsets_mapping=True)
        assert encoded["input_ids"] == [*(index + 103 for index in piece.encode(text)), 1], ascii(text)
        assert all(0 <= a <= b <= len(text) for a, b in encoded["offset_mapping"])
    for text in PLAIN:
        assert tok.encode(text) == theirs.encode(text)
        assert tok.encode(text, "so") == theirs.encode(text, "so")
    named = ("pad_token_id", "eos_token_id", "unk_token_id", "mask_token_id")
    assert [getattr(tok, name) for name in named] == [getattr(theirs, name) for name in named] == [0, 1, 105, 3]
    for token in ("<mask_1>", "<unk_2>", "<unk_102>"):
        assert tok.convert_tokens_to_ids(token) == theirs.convert_tokens_to_ids(token)
        assert token in tok.all_special_tokens


def test_another_file_is_no_pegasus_model(tmp_path, unigram):
    folder(tmp_path, {"spiece.model": unigram}, {"tokenizer_class": "PegasusTokenizer"})
    with pytest.raises(TokenizerError, match="starts with padding"):
        load_tokenizer(tmp_path)


@pytest.mark.filterwarnings("ignore:Recommended")
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_marian_pieces_that_vocab_json_lacks_are_cut_and_unknown(tmp_path, request, kind):
    """They compete for the text like any other; what would be cut without them has other ids, not unknown ones."""
    data, rng = request.getfixturevalue(kind), random.Random(3)
    pieces = [piece.text for piece in parse(data).pieces[3:]]
    kept = [text for text in pieces if rng.random() < 0.7]
    assert {text for text in pieces if len(text) > 2} - set(kept)  # words are among those left out
    ids = {text: n for n, text in enumerate(["</s>", "<unk>", *kept, "<pad>"])}
    (tmp_path / "a").mkdir()
    files = {"source.spm": data, "target.spm": data, "vocab.json": ids}
    folder(tmp_path / "a", files, {"source_lang": "en", "target_lang": "x"})
    (tmp_path / "a" / "config.json").write_text('{"model_type": "marian"}')
    tok = load_tokenizer(tmp_path / "a")
    tok.save(tmp_path / "b")
    texts = [*PLAIN, "<s> a</s> <pad>", *(awkward(rng, accents=False, runs=False).strip() for _ in range(100))]
    for where in ("a", "b"):  # as published, and as saved here
        ours, theirs = load_tokenizer(tmp_path / where), transformers.MarianTokenizer.from_pretrained(tmp_path / where)
        assert len(ours) == len(theirs) == len(ids)
        assert (ours.bos_token, ours.model_max_length) == (theirs.bos_token, theirs.model_max_length) == (None, 512)
        for text in texts:
            wanted = theirs(text, text_target=text)
            assert dict(ours(text, text_target=text)) == dict(wanted), ascii(text)
            written = ours.decode(wanted["labels"], skip_special_tokens=True)
            # which takes away the spaces at the ends, too, where a word was left out as unknown
            assert written.strip() == theirs.decode(wanted["labels"], skip_special_tokens=True)
    assert ours("The man walked", return_offsets_mapping=True)["offset_mapping"][-2][1] == len("The man walked")
    stream = TextStream(ours.target)
    pieces = [stream.push(index) for index in ours.encode("The man walked over there.")]
    assert pieces[0]  # words are shown as they come
    assert "".join(pieces) + stream.flush() == ours.decode(ours.encode("The man walked over there."), True)
    copied = pickle.loads(pickle.dumps(tok))
    assert copied(texts, text_target=texts) == tok(texts, text_target=texts)
