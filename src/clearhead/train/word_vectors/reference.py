"""word2vec.c in plain NumPy, draw for draw: to read, to test against, and for machines without a compiler."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from clearhead.train.word_vectors.sampling import WordSampling
from clearhead.train.word_vectors.settings import END_OF_SENTENCE, Word2VecSettings

STEEP = 80.0
_WORD = (1 << 64) - 1


class Tables(NamedTuple):
    """(words, size) both, float32: the vectors that are kept, and those that words are guessed by."""

    input: np.ndarray
    output: np.ndarray


class Draws:
    """64 random bits at a time (splitmix64, Steele et al. 2014)."""

    def __init__(self, seed: int) -> None:
        self.state = seed & _WORD

    def bits(self) -> int:
        self.state = z = self.state + 0x9E3779B97F4A7C15 & _WORD
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _WORD
        return z ^ z >> 31

    def below(self, n: int) -> int:
        return (self.bits() >> 32) * n >> 32

    def word(self, sampling: WordSampling) -> int:
        """One of the others that a word is to be told from."""
        bits = self.bits()
        column = (bits >> 32) * len(sampling.cut) >> 32
        return column if bits & 0xFFFFFFFF < int(sampling.cut[column]) else int(sampling.alias[column])


def guess(output: np.ndarray, vector: np.ndarray, word: int, others: list[int], lr: float) -> tuple[np.ndarray, float]:
    """Tell `word` from `others` by a vector; the output vectors move. What it is to be moved by, and the loss."""
    error, loss = np.zeros_like(vector), 0.0
    for n, target in enumerate([word, *others]):
        if n and target == word:
            continue
        product = min(max(float(vector @ output[target]), -STEEP), STEEP)
        is_word = n == 0
        loss += math.log1p(math.exp(-product if is_word else product))
        step = np.float32((is_word - 1 / (1 + math.exp(-product))) * lr)
        error += step * output[target]
        output[target] += step * vector
    return error, loss


def learn_text(
    tables: Tables, settings: Word2VecSettings, sampling: WordSampling, text: np.ndarray, lr: float, seed: int
) -> tuple[int, float]:
    """Learn from a stretch of text: how many words were guessed, and the sum of their losses.

    text   numbers of words, sentences closed by END_OF_SENTENCE
    """
    draws, guesses, loss = Draws(seed), 0, 0.0
    sentence: list[int] = []
    for word in [*text.tolist(), END_OF_SENTENCE]:
        if word != END_OF_SENTENCE:
            if sampling.keep is None or draws.bits() & 0xFFFFFFFF <= int(sampling.keep[word]):
                sentence.append(word)
            continue
        for middle in range(len(sentence)):
            reach = settings.window - (draws.below(settings.window) if settings.shrink_windows else 0)
            around = [*sentence[max(middle - reach, 0) : middle], *sentence[middle + 1 : middle + reach + 1]]
            some = _learn_cbow if settings.cbow else _learn_skip_gram
            for one in some(tables, settings, sampling, draws, sentence[middle], around, lr):
                guesses, loss = guesses + 1, loss + one
        sentence = []
    return guesses, loss


def _learn_skip_gram(
    tables: Tables,
    settings: Word2VecSettings,
    sampling: WordSampling,
    draws: Draws,
    word: int,
    around: list[int],
    lr: float,
) -> list[float]:
    losses = []
    for other in around:
        drawn = [draws.word(sampling) for _ in range(settings.negative)]
        error, loss = guess(tables.output, tables.input[other], word, drawn, lr)
        tables.input[other] += error
        losses.append(loss)
    return losses


def _learn_cbow(
    tables: Tables,
    settings: Word2VecSettings,
    sampling: WordSampling,
    draws: Draws,
    word: int,
    around: list[int],
    lr: float,
) -> list[float]:
    if not around:
        return []
    vector = tables.input[around].sum(0)
    if settings.cbow_mean:
        vector *= np.float32(1 / len(around))
    drawn = [draws.word(sampling) for _ in range(settings.negative)]
    error, loss = guess(tables.output, vector, word, drawn, lr)
    if not settings.cbow_mean:
        error *= np.float32(1 / len(around))
    for other in around:  # one that stands there twice is moved twice
        tables.input[other] += error
    return [loss]
