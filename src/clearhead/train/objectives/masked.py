"""Masked words: some tokens of a text are hidden, and guessed from both sides (BERT, RoBERTa).

`Masking` chooses and hides them; the other objectives that mask share it.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from tokenizers import models

from clearhead.errors import InputError
from clearhead.text import Tokenizer
from clearhead.text.readable import BYTE_OF, is_byte_level
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.padding import IGNORED, mask_of, padded
from clearhead.train.objectives.running_text import (
    TokenPrediction,
    around,
    check_length,
    counted,
    pad_id,
    special_id,
    special_table,
)

_SPACE = "▁"  # how SentencePiece writes the space before a word


class Masking:
    """Which tokens are hidden, and how.

    mlm_probability       the share of a sequence's tokens that is chosen, special tokens counted but never chosen
    mask_replace_prob     the share of the chosen that becomes the mask token
    random_replace_prob   the share of the chosen that becomes another token, any that is not special; the rest stay
    whole_word            the pieces of a word are chosen together; each is then hidden, changed or kept by itself
    ngrams                up to so many neighbouring words are chosen at once, n of them with p(n) ∝ 1/n (ALBERT: 3)
    max_predictions       never more than this many (BERT's max_predictions_per_seq)

    As BERT does it, their number is fixed, max(1, round(mlm_probability · length)); RoBERTa's and transformers' code
    draws for each token, so that it varies around that.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        whole_word: bool = False,
        ngrams: int = 1,
        max_predictions: int | None = None,
    ) -> None:
        for name, value in {
            "mlm_probability": mlm_probability,
            "mask_replace_prob": mask_replace_prob,
            "random_replace_prob": random_replace_prob,
            "mask_replace_prob + random_replace_prob": mask_replace_prob + random_replace_prob,
        }.items():
            if not 0 <= value <= 1:
                raise InputError(f"{name} is {value}; a share lies between 0 and 1.")
        for name, value in {
            "ngrams": ngrams,
            "max_predictions": 1 if max_predictions is None else max_predictions,
        }.items():
            if value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1.")
        self.mlm_probability, self.mask_replace_prob, self.random_replace_prob, self.ngrams, self.max_predictions = (
            mlm_probability,
            mask_replace_prob,
            random_replace_prob,
            ngrams,
            max_predictions,
        )
        self.sums = one_over_n(ngrams)
        self.mask_id = special_id(tokenizer, "mask_token", "to hide words with")
        self.special, self.ordinary = special_table(tokenizer)
        self.begins = word_begins(tokenizer) if whole_word else None

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The sequence as the model reads it, and the labels: the words at the chosen positions."""
        chosen = self.choose(ids, rng)
        inputs, labels = ids.copy(), np.full(len(ids), IGNORED, dtype=np.int64)
        labels[chosen] = ids[chosen]
        uniforms = rng.random(len(chosen))
        inputs[chosen[uniforms < self.mask_replace_prob]] = self.mask_id
        changed = chosen[
            (uniforms >= self.mask_replace_prob) & (uniforms < self.mask_replace_prob + self.random_replace_prob)
        ]
        inputs[changed] = rng.choice(self.ordinary, size=len(changed))
        return inputs, labels

    def choose(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The positions, in order."""
        count = max(1, round(len(ids) * self.mlm_probability))
        count = count if self.max_predictions is None else min(count, self.max_predictions)
        free = ~self.special[ids]
        candidates = np.flatnonzero(free)
        if not len(candidates):
            return candidates
        if self.begins is None and self.ngrams == 1:
            return np.sort(rng.permutation(candidates)[:count])
        firsts, ends = self._words(ids, candidates)
        is_chosen = np.zeros(len(ids), dtype=bool)
        remaining = count
        for word, uniform in zip(rng.permutation(len(firsts)).tolist(), rng.random(len(firsts)).tolist(), strict=True):
            if remaining == 0:
                break
            n = drawn_size(self.sums[: len(firsts) - word], uniform)
            first, end = firsts[word], ends[word + n - 1]
            while n > 1 and (
                end - first > remaining or not free[first:end].all()
            ):  # too many, or across a special token
                n -= 1
                end = ends[word + n - 1]
            if end - first <= remaining and not is_chosen[first:end].any():
                is_chosen[first:end] = True
                remaining -= end - first
        if remaining == count:  # every word has more pieces than are wanted
            word = rng.integers(len(firsts))
            is_chosen[firsts[word] : ends[word]] = True
        return np.flatnonzero(is_chosen)

    def _words(self, ids: np.ndarray, candidates: np.ndarray) -> tuple[list[int], list[int]]:
        """Where each word begins and ends. A special token ends a word."""
        begins = np.diff(candidates, prepend=-2) > 1
        begins |= True if self.begins is None else self.begins[ids[candidates]]
        starts = np.flatnonzero(begins)
        return candidates[starts].tolist(), (candidates[np.append(starts[1:], len(candidates)) - 1] + 1).tolist()


def one_over_n(longest: int) -> list[float]:
    """Sums of 1/n for n from 1 on: what `drawn_size` looks a draw up in."""
    return np.cumsum(1 / np.arange(1, longest + 1)).tolist()


def drawn_size(sums: list[float], draw: float) -> int:
    """A size n, from 1 to len(sums), with p(n) ∝ 1/n. The draw is in [0, 1)."""
    return 1 + bisect_right(sums, draw * sums[-1], hi=len(sums) - 1)


class MaskedLM(TokenPrediction):
    """15 % of the tokens are chosen: of these 80 % become [MASK], 10 % another token, 10 % stay; all are guessed.

    whole_word        the pieces of a word are chosen together
    dynamic           another choice each time a text is seen (RoBERTa); otherwise always the same one (BERT)
    max_predictions   never more than so many per sequence

    Sequences are blocks of running text between [CLS] and [SEP]; a further [SEP] stands where a document ends
    (RoBERTa's FULL-SENTENCES).
    """

    name = "masked-lm"
    task = "masked-lm"
    predicted = "masked"
    higher_is_better = frozenset({"masked_accuracy"})
    # RoBERTa's
    special_tokens = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}

    def __init__(
        self,
        tokenizer: Tokenizer,
        length: int,
        *,
        mlm_probability: float = 0.15,
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        whole_word: bool = False,
        dynamic: bool = True,
        max_predictions: int | None = None,
    ) -> None:
        self.first, self.last = around(tokenizer)
        super().__init__(tokenizer, length, closing=self.last)
        check_length(length, 3)
        self.masking = Masking(
            tokenizer,
            mlm_probability=mlm_probability,
            mask_replace_prob=mask_replace_prob,
            random_replace_prob=random_replace_prob,
            whole_word=whole_word,
            max_predictions=max_predictions,
        )
        self.dynamic = dynamic

    @property
    def block_length(self) -> int:
        return self.length - 2  # [CLS] and [SEP] come around it

    def noise(self, example: Example, rng: np.random.Generator) -> Example:
        ids = np.concatenate(([self.first], example["input_ids"], [self.last])).astype(np.int64)
        inputs, labels = self.masked(ids, rng)
        return {"input_ids": inputs, "labels": labels}

    def masked(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        # a choice that never changes is drawn from the text itself
        return self.masking(ids, rng if self.dynamic else np.random.default_rng(zlib.crc32(ids.tobytes())))

    def collate(self, examples: Sequence[Example]) -> Batch:
        return masked_batch(examples, pad_id(self.tokenizer))


def masked_batch(examples: Sequence[Example], pad: int) -> Batch:
    """input_ids and labels, padded; an attention_mask where there is padding."""
    rows = [example["input_ids"] for example in examples]
    inputs = {"input_ids": padded(rows, pad), "labels": padded([e["labels"] for e in examples], IGNORED)}
    if len(set(map(len, rows))) > 1:
        inputs["attention_mask"] = mask_of(rows)
    return Batch(inputs, {"loss": counted(inputs["labels"])}, sum(map(len, rows)))


def word_begins(tokenizer: Tokenizer) -> np.ndarray:
    """By id, whether the token begins a word: no "##" before it (WordPiece), or a space in front (all others)."""
    vocabulary, backend = tokenizer.get_vocab(), tokenizer.backend
    begins = np.zeros(max(vocabulary.values()) + 1, dtype=bool)
    if isinstance(backend.model, models.WordPiece):
        prefix = backend.model.continuing_subword_prefix
        begins[[n for token, n in vocabulary.items() if not token.startswith(prefix)]] = True
    elif is_byte_level(backend):
        spaces = tuple(char for char, byte in BYTE_OF.items() if chr(byte).isspace() and byte < 128)
        begins[[n for token, n in vocabulary.items() if token.startswith(spaces)]] = True
    else:
        begins[[n for token, n in vocabulary.items() if token.startswith(_SPACE)]] = True
    if not begins.any():
        raise InputError("Where words begin cannot be seen from this tokenizer's pieces, so whole_word must be false.")
    return begins
