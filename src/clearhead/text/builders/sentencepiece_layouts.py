"""What families do to a SentencePiece model: other ids, other text steps before it, tokens after the pieces."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, normalizers

from clearhead.errors import TokenizerError
from clearhead.text.added_tokens import content_of
from clearhead.text.builders.sentencepiece_model import Piece, PieceType, SentencePieceModel
from clearhead.text.builders.templates import Config, Tokens
from clearhead.text.languages import Languages

_MOST_TOKENS = 10**6  # that a setting may ask for; published ones ask for a hundred

# ---- other ids


@dataclass(frozen=True)
class FairseqLayout:
    """XLM-R was trained with ids of its own: four special tokens, the pieces, codes of languages, the mask."""

    languages: Callable[[Config], Languages] | None = None

    def __call__(self, model: SentencePieceModel, path: Path, tokens: Tokens, config: Config) -> None:
        codes = self.languages(config).tokens() if self.languages is not None else []
        names = [str(tokens.get(name)) for name in ("bos_token", "pad_token", "eos_token", "unk_token")]
        front = [Piece(text, 0.0, PieceType.CONTROL) for text in names[:3]] + [Piece(names[3], 0.0, PieceType.UNKNOWN)]
        rest = [piece for piece in model.pieces if piece.type not in (PieceType.CONTROL, PieceType.UNKNOWN)]
        model.pieces = front + rest + [Piece(code, 0.0, PieceType.CONTROL) for code in codes]
        model.unk_id = 3
        mask = tokens.get("mask_token")
        if mask is not None and all(piece.text != mask for piece in rest):
            model.pieces.append(Piece(mask, 0.0, PieceType.CONTROL))


def pegasus_layout(model: SentencePieceModel, path: Path, tokens: Tokens, config: Config) -> None:
    """Pegasus puts its two masks and a hundred unused tokens between the end token and the pieces."""
    offset, sentence = _count(config, "offset", 103), content_of(config.get("mask_token_sent", "<mask_1>"))
    names = [tokens.get("pad_token"), tokens.get("eos_token")]
    if sentence is not None:  # without it (BigBird-Pegasus) the other mask is a piece like any other
        names += [sentence, tokens.get("mask_token")]
    front = [Piece(name, 0.0, PieceType.CONTROL) for name in names if name is not None]
    front += [Piece(f"<unk_{n}>", 0.0, PieceType.CONTROL) for n in range(2, offset)]
    model.pieces = front + model.pieces[2:]  # the file's own first two are padding and the end
    model.unk_id += len(front) - 2
    if [piece.text for piece in front[:2]] != names[:2] or model.pieces[model.unk_id].type is not PieceType.UNKNOWN:
        raise TokenizerError("A Pegasus model file starts with padding, the end token and the unknown token.")


# ---- text steps before


@dataclass(frozen=True)
class CleaningNormalizers:
    """Quotes, accents and case, as ALBERT and XLNet treat them; `lowercase` where the configuration is silent."""

    lowercase: bool

    def __call__(self, config: Config) -> list[normalizers.Normalizer]:
        steps: list[normalizers.Normalizer] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not config.get("keep_accents", False):
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if config.get("do_lower_case", self.lowercase):
            steps.append(normalizers.Lowercase())
        return steps


def deberta_normalizers(config: Config) -> list[normalizers.Normalizer]:
    if config.get("split_by_punct", False):
        raise ValueError("split_by_punct = true, which cuts texts at punctuation first, is not implemented")
    return [normalizers.Lowercase()] if config.get("do_lower_case", False) else []


# ---- tokens after the pieces


def add_extra_ids(backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None:
    """T5's sentinels; the first extra id is the last of the vocabulary."""
    names = [f"<extra_id_{n}>" for n in reversed(range(_count(config, "extra_ids", 100)))]
    backend.add_special_tokens([name for name in names if backend.token_to_id(name) is None])


def add_mask(backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None:
    mask = tokens.get("mask_token")
    backend.add_special_tokens([mask] if mask is not None and backend.token_to_id(mask) is None else [])


@dataclass(frozen=True)
class AddLanguageCodes:
    """M2M-100's codes come after the pieces."""

    languages: Callable[[Config], Languages]

    def __call__(self, backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None:
        backend.add_special_tokens(self.languages(config).tokens())


def add_target_codes(backend: tokenizers.Tokenizer, tokens: Tokens, config: Config) -> None:
    """Marian's `>>fra<<` before a text says which language to write; such codes are never split."""
    codes = [token for token in backend.get_vocab() if re.fullmatch(">>.+<<", token)]
    backend.add_tokens([AddedToken(code, normalized=False) for code in sorted(codes)])


def _count(config: Config, name: str, default: int) -> int:
    """A number of tokens that a setting asks for."""
    count = config.get(name, default)
    if not isinstance(count, int) or not 0 <= count <= _MOST_TOKENS:
        raise TokenizerError(
            f"{name} in tokenizer_config.json is {count!r}; it is a number of tokens, at most a million."
        )
    return count
