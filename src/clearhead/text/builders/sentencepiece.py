"""Tokenizers from SentencePiece models, so that ids are those of the `sentencepiece` package."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from clearhead.text.builders.sentencepiece_model import PieceType, SentencePieceModel, read_sentencepiece
from clearhead.text.builders.templates import BOS_EOS, Config, Tokens, Wrapper
from clearhead.text.builders.vocabulary_files import Built, Ids, VocabularyFiles
from clearhead.text.files import SENTENCEPIECE_FILES, library_errors

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


Layout = Callable[[SentencePieceModel, Path, Tokens, Config], None]
Normalizers = Callable[[Config], list[normalizers.Normalizer]]
AddTokens = Callable[[tokenizers.Tokenizer, Tokens, Config], None]


@dataclass(frozen=True)
class SentencePieceFiles(VocabularyFiles):
    """A SentencePiece model, with what a family does to it.

    layout        gives the pieces the ids that the family was trained with, where they are not those of the file
    normalizers   what is done to a text before the model file takes over
    add_tokens    special tokens after the pieces
    """

    template: Wrapper | None = BOS_EOS
    layout: Layout | None = None
    normalizers: Normalizers | None = None
    add_tokens: AddTokens | None = None

    @staticmethod
    def find(folder: Path) -> Path | None:
        return next((folder / name for name in SENTENCEPIECE_FILES if (folder / name).is_file()), None)

    def build(self, path: Path, tokens: Tokens, config: Config, added: Ids) -> Built:
        model = read_sentencepiece(path)
        named = named_pieces(model)
        tokens = {**named, **tokens}
        if config.get("add_prefix_space") is not None:
            model.add_dummy_prefix = bool(config["add_prefix_space"])
        if self.layout is not None:
            self.layout(model, path, tokens, config)
        with library_errors(path):
            backend = pipeline(model, before=self.normalizers(config) if self.normalizers is not None else ())
        if self.add_tokens is not None:
            self.add_tokens(backend, tokens, config)
        return Built(backend, named)


def named_pieces(model: SentencePieceModel) -> dict[str, str]:
    """The special tokens that the model file itself names."""
    ids = {
        "unk_token": model.unk_id,
        "bos_token": model.bos_id,
        "eos_token": model.eos_id,
        "pad_token": model.pad_id,
    }
    control = (PieceType.CONTROL, PieceType.UNKNOWN)
    return {
        name: model.pieces[index].text
        for name, index in ids.items()
        if 0 <= index < len(model.pieces) and model.pieces[index].type in control
    }


def pipeline(model: SentencePieceModel, before: Sequence[normalizers.Normalizer] = ()) -> tokenizers.Tokenizer:
    """The model between the text steps it was trained with; a ValueError where it is of a kind not supported."""
    if model.algorithm not in (_UNIGRAM, _BPE):
        raise ValueError("only unigram and BPE models are supported, and it is of another kind")
    if model.whitespace_is_suffix or not model.escape_whitespaces:
        raise ValueError("models that put spaces after words, or keep them unescaped, are not supported")
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
    control = (PieceType.CONTROL, PieceType.UNKNOWN)
    backend.add_special_tokens([piece.text for piece in model.pieces if piece.type in control])
    if model.algorithm == _BPE:  # a unigram model finds them by their score
        own = [piece.text for piece in model.pieces if piece.type is PieceType.USER_DEFINED]
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
    worst = min((piece.score for piece in model.pieces if piece.type is PieceType.NORMAL), default=0.0)
    # far below any other way to write it, so that the text "<0x41>" itself is never taken for the byte
    never = 6 * worst - 60
    hidden = (PieceType.BYTE, PieceType.UNUSED)
    scores = [(piece.text, never if piece.type in hidden else piece.score) for piece in model.pieces]
    return models.Unigram(scores, unk_id=model.unk_id, byte_fallback=model.byte_fallback)


def _bpe(model: SentencePieceModel) -> models.BPE:
    """Merges are not stored: any two pieces that make a third merge, the best-scored result first."""
    vocab = {piece.text: index for index, piece in enumerate(model.pieces)}
    normal = {piece.text for piece in model.pieces if piece.type is PieceType.NORMAL}
    merges = []
    for index, piece in enumerate(model.pieces):
        if piece.type is not PieceType.NORMAL:
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
