"""Trains a tokenizer of CLIP's kind: byte pairs inside words whose ends are marked, in lower case."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tokenizers import pre_tokenizers, trainers

from clearhead.errors import TokenizerError
from clearhead.text.builders.bpe import END_OF_WORD, byte_word_bpe
from clearhead.text.builders.families import by_name
from clearhead.text.builders.templates import CLIP
from clearhead.text.tokenizer import Tokenizer


def train_clip_tokenizer(
    texts: Iterable[str], vocab_size: int, *, min_frequency: int = 2, special_tokens: Sequence[str] = ()
) -> Tokenizer:
    """Every byte has a token inside a word and one at its end, so that nothing is ever unknown; the rest are pairs."""
    family = by_name("clip")
    start, end = family.tokens["bos_token"], family.tokens["eos_token"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, *(letter + END_OF_WORD for letter in letters)]
    marks = list(dict.fromkeys([*special_tokens, start, end]))  # the end token last: the largest id
    if vocab_size < len(tokens) + len(marks):
        raise TokenizerError(
            f"vocab_size={vocab_size} is too small: it takes {len(tokens) + len(marks)}, for {len(letters)} bytes "
            f"inside words and at their ends, and {len(marks)} special tokens."
        )
    backend = byte_word_bpe({end: 0}, [], end)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(marks),
        min_frequency=min_frequency,
        initial_alphabet=letters,
        end_of_word_suffix=END_OF_WORD,
        show_progress=False,
    )
    backend.train_from_iterator(iter(texts), trainer)
    learnt = json.loads(backend.to_str())["model"]["merges"]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in learnt]
    merges = [(str(left), str(right)) for left, right in pairs][: vocab_size - len(tokens) - len(marks)]
    tokens = list(dict.fromkeys([*tokens, *("".join(merge) for merge in merges), *marks]))
    backend = byte_word_bpe({token: n for n, token in enumerate(tokens)}, merges, end)
    backend.add_special_tokens(marks)
    CLIP.wrap(backend, family.tokens, {})
    return Tokenizer(
        backend, {"do_lower_case": True}, named=family.tokens, extra=list(special_tokens), saved_class="CLIPTokenizer"
    )
