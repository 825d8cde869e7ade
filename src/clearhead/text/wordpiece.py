"""Builds a BERT tokenizer from the vocab.txt that BERT was published with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from clearhead.errors import TokenizerError
from clearhead.text.files import read_text


def read_vocab(path: Path) -> dict[str, int]:
    """One token per line; the line number is the id. As in BERT, a repeated token keeps its last id."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        raise TokenizerError(f"{path} is empty, so there is no vocabulary. Download the file again.")
    return {token: index for index, token in enumerate(lines)}


def build_wordpiece(path: Path, tokens: Mapping[str, str | None], config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """The tokenizer of a vocab.txt, with the special tokens and settings of its configuration."""
    vocab = read_vocab(path)
    unknown = tokens.get("unk_token")
    if unknown is None or unknown not in vocab:
        raise TokenizerError(
            f"{path} has no line for the unknown token {unknown}. It is damaged, or is not a BERT vocabulary; "
            "if the token has another name, set unk_token in tokenizer_config.json."
        )
    return wordpiece(
        vocab,
        tokens,
        lowercase=bool(config.get("do_lower_case", True)),
        strip_accents=config.get("strip_accents"),
        chinese=bool(config.get("tokenize_chinese_chars", True)),
    )


def wordpiece(
    vocab: dict[str, int],
    tokens: Mapping[str, str | None],
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    chinese: bool = True,
) -> tokenizers.Tokenizer:
    """BERT's pipeline around a vocabulary."""
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=str(tokens["unk_token"])))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    first, last = tokens.get("cls_token"), tokens.get("sep_token")
    if first in vocab and last in vocab:
        backend.post_processor = processors.TemplateProcessing(
            single=[f"{first}:0", "$A:0", f"{last}:0"],
            pair=[f"{first}:0", "$A:0", f"{last}:0", "$B:1", f"{last}:1"],
            special_tokens=[(first, vocab[first]), (last, vocab[last])],
        )
    return backend
