"""Builds tokenizers from SentencePiece models, so that ids are those of the `sentencepiece` package."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from clearhead.errors import TokenizerError
from clearhead.text.byte_bpe import read_ids, wrap_with_bos_eos
from clearhead.text.files import library_errors
from clearhead.text.languages import languages_of
from clearhead.text.sentencepiece import Kind, Piece, SentencePieceModel
from clearhead.text.special import content_of

SPACE = "▁"
_UNIGRAM, _BPE = 1, 2

# The library applies a model's character map to whole grapheme clusters and drops what the map does not know:
# a no-break space before an emoji joiner would swallow the joiner. A character no text has is put between the
# two, and taken out again afterwards. Letters stay with their accents, which the map does know.
_MARK = "\ufdd0"
_APART = (
    r"(?!\A)(?:"
    r"(?=[\n\x{200d}\x{20e3}\x{fe00}-\x{fe0f}\x{1f3fb}-\x{1f3ff}\x{e0020}-\x{e007f}\x{e0100}-\x{e01ef}])"
    r"|(?<=[^\p{L}\p{Sm}])(?=\p{M}))"
)


def build_pieces(
    path: Path,
    model: SentencePieceModel,
    family: str | None,
    tokens: Mapping[str, str | None],
    config: Mapping[str, Any],
) -> tokenizers.Tokenizer:
    """The tokenizer of the model read from `path`, laid out as its family does, with these special tokens."""
    if "add_prefix_space" in config and config["add_prefix_space"] is not None:
        model.add_dummy_prefix = bool(config["add_prefix_space"])
    languages = languages_of(family, config)
    if family in ("xlm-roberta", "mbart", "mbart50", "nllb"):
        _lay_out_like_fairseq(model, tokens, languages.tokens() if languages else [])
    elif family in ("marian", "m2m_100"):
        own = path.with_name("target_vocab.json")  # of two vocabularies, the target's
        vocab = own if path.name == "target.spm" and own.is_file() else path.with_name("vocab.json")
        _lay_out_by_ids(model, read_ids(vocab), str(tokens.get("unk_token")))
    elif family == "pegasus":
        _lay_out_like_pegasus(model, tokens, config)
    with library_errors(path):
        backend = pipeline(model, before=_steps_before(family, config))
    if family == "t5":
        # the first extra id is the last of the vocabulary
        count = config.get("extra_ids", 100)
        if not isinstance(count, int) or count < 0:
            raise TokenizerError(f"{path}: extra_ids in tokenizer_config.json is {count!r}; it is a number of tokens.")
        names = [f"<extra_id_{n}>" for n in reversed(range(count))]
        backend.add_special_tokens([name for name in names if backend.token_to_id(name) is None])
    elif family == "deberta-v2":
        mask = tokens.get("mask_token")  # after the last piece, as published
        backend.add_special_tokens([mask] if mask is not None and backend.token_to_id(mask) is None else [])
    elif family == "m2m_100" and languages is not None:
        backend.add_special_tokens(languages.tokens())
    elif family == "marian":
        codes = [token for token in backend.get_vocab() if re.fullmatch(">>.+<<", token)]
        backend.add_tokens([AddedToken(code, normalized=False) for code in sorted(codes)])
    _wrap(backend, family, tokens, config)
    return backend


def named_pieces(model: SentencePieceModel) -> dict[str, str]:
    """The special tokens that the model file itself names."""
    ids = {
        "unk_token": model.unk_id,
        "bos_token": model.bos_id,
        "eos_token": model.eos_id,
        "pad_token": model.pad_id,
    }
    control = (Kind.CONTROL, Kind.UNKNOWN)
    return {
        name: model.pieces[index].text
        for name, index in ids.items()
        if 0 <= index < len(model.pieces) and model.pieces[index].kind in control
    }


def pipeline(model: SentencePieceModel, before: Sequence[normalizers.Normalizer] = ()) -> tokenizers.Tokenizer:
    """The model between the text steps it was trained with."""
    if model.algorithm not in (_UNIGRAM, _BPE):
        raise TokenizerError("only unigram and BPE models are supported, and it is of another kind")
    if model.whitespace_is_suffix or not model.escape_whitespaces:
        raise TokenizerError("models that put spaces after words, or keep them unescaped, are not supported")
    backend = tokenizers.Tokenizer(_unigram(model) if model.algorithm == _UNIGRAM else _bpe(model))
    backend.normalizer = normalizers.Sequence([*before, *_text_steps(model)])
    texts = {piece.text for piece in model.pieces}
    if SPACE in texts and not any(SPACE in text[1:] for text in texts):
        # no piece reaches across a space, so words can be looked up one by one
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="never")
    steps: list[decoders.Decoder] = [decoders.Replace(SPACE, " ")]
    steps += [decoders.ByteFallback()] if model.byte_fallback else []
    steps += [decoders.Fuse()]
    steps += [decoders.Strip(" ", 1, 0)] if model.add_dummy_prefix else []
    backend.decoder = decoders.Sequence(steps)
    control = (Kind.CONTROL, Kind.UNKNOWN)
    backend.add_special_tokens([piece.text for piece in model.pieces if piece.kind in control])
    if model.algorithm == _BPE:  # a unigram model finds them by their score
        own = [piece.text for piece in model.pieces if piece.kind is Kind.USER_DEFINED]
        backend.add_tokens([AddedToken(text, normalized=False) for text in own])
    return backend


def _text_steps(model: SentencePieceModel) -> list[normalizers.Normalizer]:
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        steps += [
            normalizers.Replace(Regex(_APART), _MARK),
            normalizers.Precompiled(model.charsmap),
            normalizers.Replace(_MARK, ""),
        ]
    if model.remove_extra_whitespaces:
        # plain spaces only: the character map has already decided which others become one
        steps += [
            normalizers.Replace(Regex(" {2,}"), " "),
            normalizers.Replace(Regex(rf"\A +|[ {SPACE}]+\z"), ""),
        ]
    if model.add_dummy_prefix:
        steps.append(normalizers.Prepend(SPACE))
    steps.append(normalizers.Replace(" ", SPACE))
    return steps


def _unigram(model: SentencePieceModel) -> models.Unigram:
    worst = min((piece.score for piece in model.pieces if piece.kind is Kind.NORMAL), default=0.0)
    # far below any other way to write it, so that the text "<0x41>" itself is never taken for the byte
    never = 6 * worst - 60
    scores = [(piece.text, never if piece.kind in (Kind.BYTE, Kind.UNUSED) else piece.score) for piece in model.pieces]
    return models.Unigram(scores, unk_id=model.unk_id, byte_fallback=model.byte_fallback)


def _bpe(model: SentencePieceModel) -> models.BPE:
    """Merges are not stored: any two pieces that make a third merge, the best-scored result first."""
    vocab = {piece.text: index for index, piece in enumerate(model.pieces)}
    normal = {piece.text for piece in model.pieces if piece.kind is Kind.NORMAL}
    merges = []
    for index, piece in enumerate(model.pieces):
        if piece.kind is not Kind.NORMAL:
            continue
        for cut in range(len(piece.text) - 1, 0, -1):
            left, right = piece.text[:cut], piece.text[cut:]
            if left in normal and right in normal:
                merges.append((-piece.score, index, -cut, (left, right)))
    return models.BPE(
        vocab,
        [pair for *_, pair in sorted(merges)],
        unk_token=model.pieces[model.unk_id].text,
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
    )


def _lay_out_like_fairseq(model: SentencePieceModel, tokens: Mapping[str, str | None], codes: list[str]) -> None:
    """XLM-R was trained with ids of its own: four special tokens, the pieces, codes of languages, the mask."""
    names = [str(tokens.get(name)) for name in ("bos_token", "pad_token", "eos_token", "unk_token")]
    front = [Piece(text, 0.0, Kind.CONTROL) for text in names[:3]] + [Piece(names[3], 0.0, Kind.UNKNOWN)]
    rest = [piece for piece in model.pieces if piece.kind not in (Kind.CONTROL, Kind.UNKNOWN)]
    model.pieces = front + rest + [Piece(code, 0.0, Kind.CONTROL) for code in codes]
    model.unk_id = 3
    mask = tokens.get("mask_token")
    if mask is not None and all(piece.text != mask for piece in rest):
        model.pieces.append(Piece(mask, 0.0, Kind.CONTROL))


def _lay_out_by_ids(model: SentencePieceModel, ids: Mapping[str, int], unknown: str) -> None:
    """Marian keeps the ids in vocab.json, which also holds the pieces of the other language."""
    if unknown not in ids:
        raise TokenizerError(f"vocab.json has no unknown token {unknown}, so it does not belong to this model.")
    if sorted(ids.values()) != list(range(len(ids))):
        raise TokenizerError("vocab.json skips an id. The file is damaged; download it again.")
    known = {piece.text: piece for piece in model.pieces if piece.kind is Kind.NORMAL}
    ordered = sorted(ids, key=ids.__getitem__)
    model.pieces = [
        Piece(text, 0.0, Kind.UNKNOWN) if text == unknown else known.get(text, Piece(text, 0.0, Kind.UNUSED))
        for text in ordered
    ]
    model.unk_id = ids[unknown]


def _lay_out_like_pegasus(
    model: SentencePieceModel, tokens: Mapping[str, str | None], config: Mapping[str, Any]
) -> None:
    """Pegasus puts its two masks and a hundred unused tokens between the end token and the pieces."""
    offset, sentence = int(config.get("offset", 103)), content_of(config.get("mask_token_sent", "<mask_1>"))
    names = [tokens.get("pad_token"), tokens.get("eos_token")]
    if sentence is not None:  # without it (BigBird-Pegasus) the other mask is a piece like any other
        names += [sentence, tokens.get("mask_token")]
    front = [Piece(name, 0.0, Kind.CONTROL) for name in names if name is not None]
    front += [Piece(f"<unk_{n}>", 0.0, Kind.CONTROL) for n in range(2, offset)]
    model.pieces = front + model.pieces[2:]  # the file's own first two are padding and the end
    model.unk_id += len(front) - 2
    if [piece.text for piece in front[:2]] != names[:2] or model.pieces[model.unk_id].kind is not Kind.UNKNOWN:
        raise TokenizerError("A Pegasus model file starts with padding, the end token and the unknown token.")


def _steps_before(family: str | None, config: Mapping[str, Any]) -> list[normalizers.Normalizer]:
    """What ALBERT, XLNet and DeBERTa do to a text before the model file takes over."""
    if family == "deberta-v2":
        if config.get("split_by_punct", False):
            raise TokenizerError("split_by_punct = true, which cuts texts at punctuation first, is not implemented")
        return [normalizers.Lowercase()] if config.get("do_lower_case", False) else []
    if family not in ("albert", "xlnet"):
        return []
    steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not config.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if config.get("do_lower_case", family == "albert"):
        steps.append(normalizers.Lowercase())
    return steps


def _wrap(
    backend: tokenizers.Tokenizer, family: str | None, tokens: Mapping[str, str | None], config: Mapping[str, Any]
) -> None:
    """Puts the family's special tokens around a text."""
    first, last, end = tokens.get("cls_token"), tokens.get("sep_token"), tokens.get("eos_token")
    if family in ("albert", "big_bird", "deberta-v2"):
        single, pair = f"{first}:0 $A:0 {last}:0", f"{first}:0 $A:0 {last}:0 $B:1 {last}:1"
    elif family == "xlnet":  # the class token comes last, in a segment of its own
        single, pair = f"$A:0 {last}:0 {first}:2", f"$A:0 {last}:0 $B:1 {last}:1 {first}:2"
    elif family == "xlm-roberta":
        single, pair = f"{first} $A {last}", f"{first} $A {last} {last} $B {last}"
    elif (languages := languages_of(family, config)) is not None:
        languages.wrap(backend, config.get("src_lang") or languages.default, str(end))
        return
    elif family in ("t5", "marian", "pegasus"):
        single, pair = f"$A {end}", f"$A {end} $B {end}" if family == "t5" else f"$A $B {end}"
    else:
        bos = bool(config.get("add_bos_token", family == "llama"))
        wrap_with_bos_eos(backend, tokens, bos=bos, eos=bool(config.get("add_eos_token", False)))
        return
    used = {name: backend.token_to_id(name) for name in re.sub(r":\d", "", single).split() if name != "$A"}
    missing = [name for name, index in used.items() if index is None]
    if missing:
        raise TokenizerError(
            f"The vocabulary has no {' and no '.join(missing)}, which this kind of tokenizer puts around a text. "
            "If they have other names, set them in tokenizer_config.json."
        )
    backend.post_processor = processors.TemplateProcessing(
        single=single.split(), pair=pair.split(), special_tokens=list(used.items())
    )
