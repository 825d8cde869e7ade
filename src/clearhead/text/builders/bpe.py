"""Byte pair encoding from vocab.json and merges.txt: on bytes (GPT-2, RoBERTa, DeBERTa), inside words (GPT), or on the
bytes of words (CLIP)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from clearhead.errors import TokenizerError
from clearhead.text.builders.templates import Config, Tokens
from clearhead.text.builders.vocabulary_files import Built, Ids, VocabularyFiles, with_unknown
from clearhead.text.files import library_errors, read_object, read_text

END_OF_WORD = "</w>"
# CLIP's words: its two marks, English endings, letters, each digit alone, other signs together
_CLIP_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_SPACE_AROUND = r"\A[\s\x1c-\x1f]+|[\s\x1c-\x1f]+\z"  # what Python strips


@dataclass(frozen=True)
class MergesFiles(VocabularyFiles):
    """vocab.json: tokens with their ids; merges.txt: pairs, best first. Here on bytes, as GPT-2 does it."""

    @staticmethod
    def find(folder: Path) -> Path | None:
        path = folder / "vocab.json"
        return path if path.is_file() and (folder / "merges.txt").is_file() else None

    def build(self, path: Path, tokens: Tokens, config: Config, added: Ids) -> Built:
        vocab = read_ids(path)
        merges = read_merges(path.with_name("merges.txt"), vocab)
        with library_errors(path):
            return Built(byte_bpe(vocab, merges))


@dataclass(frozen=True)
class WordMergesFiles(MergesFiles):
    """The same files for GPT, which marks where words end: `the</w>`."""

    def build(self, path: Path, tokens: Tokens, config: Config, added: Ids) -> Built:
        unknown = tokens.get("unk_token") or "<unk>"
        vocab = read_ids(path, unknown, added)
        merges = read_merges(path.with_name("merges.txt"), vocab)
        with library_errors(path):
            return Built(word_bpe(vocab, merges, unknown))


@dataclass(frozen=True)
class ByteWordMergesFiles(MergesFiles):
    """The same files for CLIP: bytes as GPT-2 writes them, and the end of each word marked as GPT does."""

    def build(self, path: Path, tokens: Tokens, config: Config, added: Ids) -> Built:
        unknown = tokens.get("unk_token") or "<|endoftext|>"
        vocab = read_ids(path, unknown, added)
        merges = read_merges(path.with_name("merges.txt"), vocab)
        with library_errors(path):
            return Built(byte_word_bpe(vocab, merges, unknown))


def read_ids(path: Path, unknown: str | None = None, added: Ids | None = None) -> dict[str, int]:
    """The tokens of a vocab.json with their ids; `unknown` must be one of them, or of those added after them."""
    vocab = read_object(path)
    for token, index in vocab.items():
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            raise TokenizerError(f"{path} gives token {token!r} the id {index!r}; an id is a whole number from 0.")
    if not vocab:
        raise TokenizerError(f"{path} is empty, so there is no vocabulary. Download the file again.")
    if len(set(vocab.values())) != len(vocab):
        raise TokenizerError(f"{path} gives two tokens the same id. The file is damaged; download it again.")
    vocab = with_unknown(vocab, unknown, added or {})
    if unknown is not None and unknown not in vocab:
        raise TokenizerError(f"{path} has no unknown token {unknown}. If it has another name, set it.")
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


def byte_bpe(vocab: dict[str, int], merges: list[tuple[str, str]]) -> tokenizers.Tokenizer:
    """GPT-2's pipeline around a vocabulary."""
    backend = tokenizers.Tokenizer(models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def word_bpe(vocab: dict[str, int], merges: list[tuple[str, str]], unknown: str) -> tokenizers.Tokenizer:
    """GPT's pipeline: BERT's way to clean and cut a text into words, in lower case, then BPE to the end of each."""
    backend = tokenizers.Tokenizer(
        models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix=END_OF_WORD, unk_token=unknown)
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=END_OF_WORD)
    return backend


def byte_word_bpe(vocab: dict[str, int], merges: list[tuple[str, str]], unknown: str) -> tokenizers.Tokenizer:
    """CLIP's pipeline: lower case and single spaces, words, their bytes, then BPE to the end of each word."""
    backend = tokenizers.Tokenizer(
        models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix=END_OF_WORD, unk_token=unknown)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CLIP_WORDS), behavior="removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    decode_words(backend, {})
    return backend


def decode_words(backend: tokenizers.Tokenizer, config: Config) -> None:
    """Bytes to text, with a space where a word ends. Published files leave that to the class in `transformers`."""
    word_end, around = decoders.Replace(END_OF_WORD, " "), decoders.Replace(Regex(_SPACE_AROUND), "")
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), word_end, around])
