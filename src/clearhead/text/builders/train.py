"""Trains a tokenizer on a corpus: byte-level BPE, WordPiece, Unigram or whole words; the same corpus gives the same."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from clearhead.errors import ClearheadError, InputError, TokenizerError
from clearhead.schema import Field
from clearhead.text.builders.bpe import byte_bpe
from clearhead.text.builders.corpus import Corpus, progress
from clearhead.text.builders.families import by_name
from clearhead.text.builders.templates import BOS_EOS, END_EACH
from clearhead.text.builders.word_list import count_words, most_frequent, word_tokenizer
from clearhead.text.builders.wordpiece import wordpiece
from clearhead.text.options import check_choice
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.word_rules import SPECIAL

KINDS = ("bpe", "wordpiece", "unigram", "words")
_END = "<|endoftext|>"
_UNIGRAM_TOKENS = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
_WORDPIECE_ORDER = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_SPACE = "▁"


def train_tokenizer(
    files_or_iterable: str | os.PathLike[str] | Iterable[Any],
    kind: str = "bpe",
    vocab_size: int = 30_000,
    *,
    min_frequency: int = 2,
    special_tokens: Sequence[str] | None = None,
    lowercase: bool | None = None,
    show_progress: bool = True,
    model_max_length: int | None = None,
) -> Tokenizer:
    """Trains a tokenizer on text files (paths, or a list of them) or on an iterable of texts.

    kind: "bpe" works on bytes like GPT-2 and never meets an unknown character; "wordpiece" works like BERT;
    "unigram" works like T5; "words" takes the most frequent words whole, as fastai does. Strings in a list count as
    files when all of them look like file names.
    min_frequency: how often a merge, or a word, must be seen (not used by unigram). special_tokens: further ones,
    never split.
    lowercase: whether case is ignored; by default only wordpiece does.
    """
    check_choice("kind", kind, KINDS)
    Field(name="vocab_size", type=int, default=1, least=1, most=10_000_000).check(vocab_size)
    Field(name="min_frequency", type=int, default=1, least=1).check(min_frequency)
    options = _TrainingOptions(
        Corpus(files_or_iterable),
        vocab_size,
        min_frequency,
        _extra(special_tokens),
        lowercase=kind == "wordpiece" if lowercase is None else lowercase,
        show=show_progress and sys.stderr.isatty(),
        config={} if model_max_length is None else {"model_max_length": model_max_length},
    )
    makers = {"bpe": _train_bpe, "wordpiece": _train_wordpiece, "unigram": _train_unigram, "words": _train_words}
    tokenizer = makers[kind](options)
    if len(tokenizer) > vocab_size:
        raise _too_small(vocab_size, len(tokenizer), "its characters and special tokens alone")
    return tokenizer


@dataclass(frozen=True)
class _TrainingOptions:
    """What the caller asked for, checked."""

    corpus: Corpus
    vocab_size: int
    min_frequency: int
    extra: list[str]
    lowercase: bool
    show: bool
    config: dict[str, Any]


def _train_bpe(options: _TrainingOptions) -> Tokenizer:
    tokens = list(dict.fromkeys([_END, *options.extra]))
    if options.vocab_size < 256 + len(tokens):
        raise _too_small(options.vocab_size, 256 + len(tokens), f"256 bytes and {len(tokens)} special tokens")
    backend = byte_bpe({}, [])
    if options.lowercase:
        backend.normalizer = normalizers.Lowercase()
    trainer = trainers.BpeTrainer(
        vocab_size=options.vocab_size,
        min_frequency=options.min_frequency,
        special_tokens=tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=options.show,
    )
    with progress(options.show, options.corpus.size) as advance:
        _train(backend, options.corpus.read(advance), trainer, options.vocab_size)
    BOS_EOS.wrap(backend, {}, {})
    return Tokenizer(
        backend,
        options.config,
        named=by_name("gpt2").tokens,
        extra=[token for token in options.extra if token != _END],
        # the GPT-2 class of `transformers` knows no normalizer
        saved_class="PreTrainedTokenizerFast" if options.lowercase else "GPT2Tokenizer",
    )


def _train_wordpiece(options: _TrainingOptions) -> Tokenizer:
    family = by_name("bert")
    tokens = list(dict.fromkeys([*(family.tokens[name] for name in _WORDPIECE_ORDER), *options.extra]))
    backend = wordpiece({family.tokens["unk_token"]: 0}, family.tokens, lowercase=options.lowercase)
    with progress(options.show, options.corpus.size and 2 * options.corpus.size) as advance:
        starts, inside = _alphabet(backend, options.corpus.read(advance, keep=True))
        letters = [f"##{char}" for char in sorted(inside)]
        needed = len(tokens) + len(letters) + len(starts | inside)
        if options.vocab_size < needed:
            parts = f"{len(starts | inside)} characters and {len(tokens)} special tokens"
            raise _too_small(options.vocab_size, needed, parts)
        # The library numbers "##" letters in a random order and breaks ties by number. Passing them as special
        # tokens numbers them first; the vocabulary is taken from the result, and that mark is not.
        trainer = trainers.WordPieceTrainer(
            vocab_size=options.vocab_size,
            min_frequency=options.min_frequency,
            special_tokens=[*tokens, *letters],
            show_progress=options.show,
        )
        _train(backend, options.corpus.read(advance), trainer, options.vocab_size)
    backend = wordpiece(backend.get_vocab(), family.tokens, lowercase=options.lowercase)
    backend.add_special_tokens(tokens)
    own = set(family.tokens.values())
    return Tokenizer(
        backend,
        options.config,
        named=family.tokens,
        extra=[token for token in options.extra if token not in own],
        model_input_names=family.inputs,
        saved_class="BertTokenizer",
    )


def _train_unigram(options: _TrainingOptions) -> Tokenizer:
    tokens = list(dict.fromkeys([*_UNIGRAM_TOKENS.values(), *options.extra]))
    unknown = _UNIGRAM_TOKENS["unk_token"]
    backend = _unigram_pipeline(models.Unigram(), options.lowercase)
    trainer = trainers.UnigramTrainer(
        vocab_size=options.vocab_size, special_tokens=tokens, unk_token=unknown, show_progress=options.show
    )
    with progress(options.show, options.corpus.size) as advance:
        _train(backend, options.corpus.read(advance), trainer, options.vocab_size)
    scores = [(str(piece), float(score)) for piece, score in json.loads(backend.to_str())["model"]["vocab"]]
    vocab = [(token, 0.0) for token in tokens] + _reproducible([item for item in scores if item[0] not in tokens])
    backend = _unigram_pipeline(models.Unigram(vocab, unk_id=tokens.index(unknown)), options.lowercase)
    backend.add_special_tokens(tokens)
    END_EACH.wrap(backend, _UNIGRAM_TOKENS, {})
    own = set(_UNIGRAM_TOKENS.values())
    return Tokenizer(
        backend, options.config, named=_UNIGRAM_TOKENS, extra=[token for token in options.extra if token not in own]
    )


def _train_words(options: _TrainingOptions) -> Tokenizer:
    """Whole words, in lower case whatever is asked: marks keep the capitals."""
    first = [*SPECIAL, *(token for token in options.extra if token not in SPECIAL)]
    if options.vocab_size <= len(first):
        raise _too_small(options.vocab_size, len(first) + 1, f"{len(first)} special tokens and a word")
    with progress(options.show, options.corpus.size) as advance:
        counts = count_words(options.corpus.read(advance))
    words = most_frequent(counts, options.vocab_size - len(first), options.min_frequency)
    return word_tokenizer([*first, *(word for word in words if word not in first)], options.config)


def _unigram_pipeline(model: models.Unigram, lowercase: bool) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(
        [
            normalizers.Nmt(),  # line ends and other controls become spaces or nothing
            normalizers.NFKC(),
            *([normalizers.Lowercase()] if lowercase else []),
            normalizers.Replace(Regex(r"\A +| +\z"), ""),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme="always")
    backend.decoder = decoders.Metaspace(replacement=_SPACE, prepend_scheme="always")
    return backend


def _reproducible(scores: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The same pieces with their scores made reproducible.

    The library adds numbers up in a random order, which shows in the last digits, and hands the lowest scores to
    rare characters in a random order. So scores are rounded, and those lowest ones go round in alphabetical order.
    """
    if not scores:
        return []
    single = [piece for piece, _ in scores if len(piece) == 1]
    lowest = min(score for _, score in scores)
    step = 1e-4  # between two of those lowest scores
    rare = {piece: score for piece, score in scores if len(piece) == 1 and score <= lowest + step * len(single)}
    final = dict(scores) | dict(zip(sorted(rare), sorted(rare.values(), reverse=True), strict=True))
    return sorted(((piece, round(score, 6)) for piece, score in final.items()), key=lambda item: (-item[1], item[0]))


def _alphabet(backend: tokenizers.Tokenizer, texts: Iterator[str]) -> tuple[set[str], set[str]]:
    """The characters that start a word, and those inside one."""
    starts: set[str] = set()
    inside: set[str] = set()
    seen: set[str] = set()
    for text in texts:
        new = set(backend.normalizer.normalize_str(text).split()) - seen
        seen |= new
        for chunk in new:
            for word, _ in backend.pre_tokenizer.pre_tokenize_str(chunk):
                starts.add(word[0])
                inside.update(word[1:])
    return starts, inside


def _train(backend: tokenizers.Tokenizer, texts: Iterator[str], trainer: trainers.Trainer, size: int) -> None:
    try:
        backend.train_from_iterator(texts, trainer)
    except (ClearheadError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises plain exceptions, or panics
        if "not large enough" in str(error):
            raise TokenizerError(
                f"vocab_size={size} is too small: this corpus has more different characters than that."
            ) from error
        raise TokenizerError(f"The tokenizer could not be trained: {error}.") from error


def _extra(tokens: Sequence[str] | None) -> list[str]:
    if isinstance(tokens, str) or not all(isinstance(token, str) and token for token in tokens or ()):
        raise InputError(f"special_tokens must be a list of strings that are not empty, but it is {tokens!r}.")
    return list(dict.fromkeys(tokens or ()))


def _too_small(size: int, needed: int, why: str) -> TokenizerError:
    return TokenizerError(f"vocab_size={size} is too small: this corpus needs at least {needed}, for {why}.")
