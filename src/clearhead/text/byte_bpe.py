"""Builds a GPT-2, RoBERTa or DeBERTa tokenizer from the vocab.json and merges.txt they were published with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from clearhead.errors import TokenizerError
from clearhead.text.files import read_object, read_text


def read_ids(path: Path) -> dict[str, int]:
    """The tokens of a vocab.json with their ids."""
    vocab = read_object(path)
    for token, index in vocab.items():
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise TokenizerError(f"{path} gives token {token!r} the id {index!r}; an id is a whole number from 0.")
    if not vocab:
        raise TokenizerError(f"{path} is empty, so there is no vocabulary. Download the file again.")
    if len(set(vocab.values())) != len(vocab):
        raise TokenizerError(f"{path} gives two tokens the same id. The file is damaged; download it again.")
    return vocab


def read_merges(path: Path, vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs of a merges.txt, best first; each must be made of known tokens and make one."""
    merges = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        parts = line.split(" ")
        if len(parts) != 2 or not all(parts):
            raise TokenizerError(f"{path}, line {number}: a merge is two tokens and a space between, not {line!r}.")
        left, right = parts
        for token in (left, right, left + right):
            if token not in vocab:
                raise TokenizerError(
                    f"{path}, line {number}: {token!r} is not in vocab.json. The two files do not belong together."
                )
        merges.append((left, right))
    return merges


def build_byte_bpe(folder: Path) -> tokenizers.Tokenizer:
    """The tokenizer of the two files, before anything is wrapped around a text."""
    vocab = read_ids(folder / "vocab.json")
    return byte_bpe(vocab, read_merges(folder / "merges.txt", vocab))


def byte_bpe(vocab: dict[str, int], merges: list[tuple[str, str]]) -> tokenizers.Tokenizer:
    """GPT-2's pipeline around a vocabulary."""
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def wrap_like_roberta(
    backend: tokenizers.Tokenizer, tokens: Mapping[str, str | None], config: Mapping[str, Any]
) -> None:
    """`<s> text </s>`, and `<s> text </s></s> pair </s>`."""
    first, last = _around(backend, tokens)
    backend.post_processor = processors.RobertaProcessing(
        last,
        first,
        trim_offsets=bool(config.get("trim_offsets", True)),
        add_prefix_space=bool(config.get("add_prefix_space", False)),
    )


def wrap_like_bert(backend: tokenizers.Tokenizer, tokens: Mapping[str, str | None]) -> None:
    """`[CLS] text [SEP]`, and `[CLS] text [SEP] pair [SEP]`."""
    first, last = _around(backend, tokens)
    backend.post_processor = processors.TemplateProcessing(
        single=[f"{first[0]}:0", "$A:0", f"{last[0]}:0"],
        pair=[f"{first[0]}:0", "$A:0", f"{last[0]}:0", "$B:1", f"{last[0]}:1"],
        special_tokens=[first, last],
    )


def _around(backend: tokenizers.Tokenizer, tokens: Mapping[str, str | None]) -> tuple[tuple[str, int], tuple[str, int]]:
    """The tokens before and after a text, with their ids."""
    pieces = []
    for name in ("cls_token", "sep_token"):
        piece = _piece(backend, tokens.get(name))
        if piece is None:
            raise TokenizerError(
                f"The vocabulary has no {tokens.get(name) or name}, which this kind of tokenizer puts around a text. "
                f"If it has another name, set {name} in tokenizer_config.json."
            )
        pieces.append(piece)
    return pieces[0], pieces[1]


def wrap_with_bos_eos(backend: tokenizers.Tokenizer, tokens: Mapping[str, str | None], *, bos: bool, eos: bool) -> None:
    """Begins each text with the first token, ends it with the last, or both."""
    first = _piece(backend, tokens.get("bos_token")) if bos else None
    last = _piece(backend, tokens.get("eos_token")) if eos else None
    before = [first[0]] if first else []
    after = [last[0]] if last else []
    backend.post_processor = processors.TemplateProcessing(
        single=[f"{token}:0" for token in (*before, "$A", *after)],
        pair=[f"{token}:0" for token in (*before, "$A", *after)] + [f"{token}:1" for token in (*before, "$B", *after)],
        special_tokens=[piece for piece in (first, last) if piece],
    )


def _piece(backend: tokenizers.Tokenizer, token: str | None) -> tuple[str, int] | None:
    index = None if token is None else backend.token_to_id(token)
    return None if token is None or index is None else (token, index)
