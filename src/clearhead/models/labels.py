"""The names of a classifier's labels, as config.json gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.errors import ConfigError
from clearhead.schema import shown

MOST_LABELS = 10_000_000


def read_labels(raw: Mapping[str, Any]) -> tuple[dict[int, str], list[str]]:
    """The labels by their numbers, 0, 1, 2 …; and what is odd about them, in sentences.

    As in transformers, num_labels counts where it contradicts id2label, and the labels are 0, 1, 2 … however they are
    numbered.
    """
    count, labels = raw.get("num_labels"), raw.get("id2label")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_LABELS):
        raise ConfigError(f"num_labels is {shown(count)}; it must be a whole number from 1 to {MOST_LABELS:,}.")
    if labels is None:
        return _numbered(count or 2), []
    try:
        named = {int(n): str(label) for n, label in labels.items()}
    except (AttributeError, TypeError, ValueError):
        raise ConfigError('id2label must map label numbers to names, such as {"0": "negative"}.') from None
    if not named:
        raise ConfigError("id2label names no label; without id2label there are as many as num_labels says.")
    if count not in (None, len(named)):
        odd = (
            f"num_labels is {count}, but id2label names {len(named)} labels. There are {count}, and they have no names."
        )
        return _numbered(count), [odd]
    if sorted(named) == list(range(len(named))):
        return dict(sorted(named.items())), []
    odd = (
        f"id2label numbers its labels {shown(sorted(named))}, not 0, 1, 2 …: there are {len(named)}, and those "
        "without a name are called LABEL_0 and so on."
    )
    return {n: named.get(n, name) for n, name in _numbered(len(named)).items()}, [odd]


def _numbered(count: int) -> dict[int, str]:
    return {n: f"LABEL_{n}" for n in range(count)}
