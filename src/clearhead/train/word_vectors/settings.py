"""What decides how word vectors are learnt, and what parts two sentences in a row of numbers."""

from __future__ import annotations

from dataclasses import dataclass

END_OF_SENTENCE = -1


@dataclass(frozen=True)
class Word2VecSettings:
    """As word2vec and gensim call them.

    cbow             the words around together guess the one in the middle; else each of them alone (skip-gram)
    window           so many words on either side, at most
    negative         so many others, drawn by chance, that a word is to be told from
    cbow_mean        the vectors of the words around are averaged, else added up
    shrink_windows   a window of 1 up to `window` words, drawn for each word: near ones count more
    """

    cbow: bool = False
    window: int = 5
    negative: int = 5
    cbow_mean: bool = True
    shrink_windows: bool = True
