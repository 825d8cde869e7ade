"""What is drawn while word vectors are learnt: frequent words that are passed over, and words to be told from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BITS = 2**32


@dataclass(frozen=True)
class WordSampling:
    """
    keep    (words), uint32: a word stays where a draw of 32 bits is not above this; None: always
    cut     (words), uint32: the alias table (Walker 1977). A column is drawn, every one as often; a second draw below
            its `cut` means the column's own word, and else
    alias   (words), int32: this one
    """

    keep: np.ndarray | None
    cut: np.ndarray
    alias: np.ndarray

    @classmethod
    def of(cls, counts: np.ndarray, sample: float = 1e-3, ns_exponent: float = 0.75) -> WordSampling:
        """
        counts        (words): how often each comes in the text
        sample        subsampling: words that make up a greater share of the text than this are passed over at times;
                      0: none
        ns_exponent   words to be told from are drawn by count ** ns_exponent: 1 as often as they come, 0 all alike
        """
        weights = counts.astype(np.float64) ** ns_exponent
        cut, alias = alias_table(weights / weights.sum())
        keep = np.minimum(kept_share(counts, sample) * (BITS - 1), BITS - 1).astype(np.uint32) if sample else None
        return cls(keep, cut, alias)


def kept_share(counts: np.ndarray, sample: float) -> np.ndarray:
    """(words): how many of a word's places are read, 0 to 1: √(t / f) + t / f, with f its share of the text and t the
    `sample`. word2vec's program has it so; its paper leaves the second term out."""
    share = counts / counts.sum()
    kept: np.ndarray = np.minimum((np.sqrt(share / sample) + 1) * (sample / share), 1.0)
    return kept


def alias_table(probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of one height: each is filled up to `cut` by its own word, and above by the `alias`."""
    words = len(probabilities)
    height = probabilities * words
    alias = np.arange(words, dtype=np.int32)
    low = np.flatnonzero(height < 1).tolist()
    high = np.flatnonzero(height >= 1).tolist()
    while low and high:
        column, donor = low.pop(), high[-1]
        alias[column] = donor
        height[donor] -= 1 - height[column]
        if height[donor] < 1:
            low.append(high.pop())
    height[[*low, *high]] = 1  # but for rounding they are
    return np.minimum(height * BITS, BITS - 1).astype(np.uint32), alias
