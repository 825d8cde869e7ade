"""The tokens of a tokenizer as words, so that they can be looked up in a table of word vectors, or be one."""

from __future__ import annotations

from clearhead.text.tokenizer import Tokenizer
from clearhead.text.word_vectors.words import Words

INSIDE = "##"  # before a piece that goes on inside a word, as WordPiece writes it


def matching_words(tokenizer: Tokenizer, words: Words) -> tuple[list[int], list[int]]:
    """The tokens that are words of a table, and their rows in it. A token that the table does not know as it is written
    is looked for in small letters, and with a capital."""
    special = set(tokenizer.all_special_ids)
    tokens, rows = [], []
    for n, text in enumerate(token_words(tokenizer)):
        if n in special or not text or (text.startswith(INSIDE) and text != INSIDE):
            continue
        forms = dict.fromkeys((text, text.lower(), text.capitalize(), text.upper()))
        row = next((row for form in forms if (row := words.find(form)) >= 0), None)
        if row is not None:
            tokens.append(n)
            rows.append(row)
    return tokens, rows


def token_words(tokenizer: Tokenizer) -> list[str]:
    """Every token by its number: a whole word or its beginning without a mark, a piece inside a word behind ##.

    Numbers that no token has are "", special tokens as they are written.
    """
    ids = sorted(tokenizer.get_vocab().values())
    texts = dict(zip(ids, tokenizer.readable(ids), strict=True))
    special = set(tokenizer.all_special_ids)
    marks_starts = any(text.startswith((" ", "▁")) for text in texts.values())
    words = []
    for n in range(ids[-1] + 1):
        text = texts.get(n, "").replace("\n", "⏎")
        whole = n in special or not marks_starts or text.startswith((" ", "▁"))
        words.append(text if n in special else text.lstrip(" ▁") or text if whole else f"{INSIDE}{text}")
    return words
