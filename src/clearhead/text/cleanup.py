"""Removes the spaces that word-level tokenizers put before punctuation, in one text or piece by piece."""

# in this order, each over the whole text: the result of one is the input of the next
REMOVALS = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)
_INSIDE = frozenset("".join(text for text, _ in REMOVALS))
_LONGEST = max(len(text) for text, _ in REMOVALS)


def clean_up(text: str) -> str:
    """The text with those spaces removed."""
    for spaced, joined in REMOVALS:
        text = text.replace(spaced, joined)
    return text


def stable_length(text: str, checked: int = 0) -> int:
    """How many leading characters can be cleaned up now, whatever text follows; `checked` of them are known not to.

    Every removal starts with a space and takes away spaces only. So none reaches across a place that comes after
    a character no removal contains, or after as many other characters as the longest removal has.
    """
    for end in range(len(text), checked, -1):
        if text[end - 1] not in _INSIDE or " " not in text[max(0, end - _LONGEST + 1) : end]:
            return end
    return 0
