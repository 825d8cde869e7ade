"""Word vectors as files, told apart, read and written; the words of a text, counted; and sums of words."""

from clearhead.text.word_vectors.counted import CountedWords
from clearhead.text.word_vectors.expression import parse
from clearhead.text.word_vectors.read import VectorFile, look
from clearhead.text.word_vectors.tokens import matching_words, token_words
from clearhead.text.word_vectors.words import WORDS, Words
from clearhead.text.word_vectors.write import ENDINGS, write_vectors

__all__ = [
    "ENDINGS", "WORDS", "CountedWords", "VectorFile", "Words", "look", "matching_words", "parse", "token_words",
    "write_vectors",
]  # fmt: skip
