"""Tag the words of texts and group the tags into entities, as transformers' token classification does with "first"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.pipeline.batches import checked_logits, rows_of, run_batches, texts_of
from clearhead.pipeline.windows import windows_of
from clearhead.text import Encoding

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline

OUTSIDE = "O"


@dataclass(frozen=True)
class Entity:
    """Neighbouring words of one label, or a word with its tag: text[start:end] of what was given."""

    label: str
    score: float  # the tag's probability; of several words, their mean
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class _Piece:
    """A token of the text: its characters, its tag, and whether it goes on with the word of the piece before."""

    start: int
    end: int
    tag: str
    score: float
    inside_word: bool


@torch.no_grad()
def tag(
    pipe: TextPipeline, text: str | list[str], *, words: bool = False, batch_size: int = 32
) -> list[Entity] | list[list[Entity]]:
    """TextPipeline.tag."""
    if pipe.model.task != "token-classification":
        raise InputError(
            f"{pipe.title} is loaded for {pipe.model.task}; only a model that was trained to tag words can tag. "
            "Choose a checkpoint for token-classification."
        )
    texts = texts_of(text)
    encoding, overlap = windows_of(pipe, texts)
    scores = run_batches(
        pipe,
        rows_of(pipe.model, encoding),
        lambda batch: checked_logits(pipe, batch).softmax(-1),  # (batch, time, tags)
        batch_size,
    )
    windows: list[list[list[_Piece]]] = [[] for _ in texts]
    for n, sample in enumerate(encoding["overflow_to_sample_mapping"]):
        windows[sample].append(_pieces(pipe, texts[sample], encoding, n, scores[n]))
    entities = []
    for sentence, parts in zip(texts, windows, strict=True):
        tagged = _words(sentence, _joined(parts, overlap))
        entities.append(tagged if words else _entities(sentence, tagged))
    return entities[0] if isinstance(text, str) else entities


def _pieces(pipe: TextPipeline, text: str, encoding: Encoding, row: int, scores: Tensor) -> list[_Piece]:
    """The tokens of a window without the special ones; scores (time, tags)."""
    backend_model = pipe.tokenizer.backend.model
    marked = bool(getattr(backend_model, "continuing_subword_prefix", None))  # WordPiece's ##
    best = scores.max(-1)
    special, ids, tokens = encoding["special_tokens_mask"][row], encoding["input_ids"][row], encoding.tokens(row)
    pieces = []
    for n, (start, end) in enumerate(encoding.offsets(row)):
        if special[n]:
            continue
        if ids[n] == pipe.tokenizer.unk_token_id:
            inside = False
        elif marked:
            inside = len(tokens[n]) != end - start
        else:
            inside = start > 0 and " " not in text[start - 1 : start + 1]
        label = pipe.model.config.id2label[int(best.indices[n])]
        pieces.append(_Piece(start, end, label, float(best.values[n]), inside))
    return pieces


def _joined(windows: Sequence[list[_Piece]], overlap: int) -> list[_Piece]:
    """The pieces of all windows; of one that two windows share, the tag that was given with more context."""
    joined = list(windows[0])
    for window in windows[1:]:
        early = overlap // 2
        joined[len(joined) - (overlap - early) :] = window[early:]
    return joined


def _words(text: str, pieces: list[_Piece]) -> list[Entity]:
    """A word has the tag of its first piece."""
    groups: list[list[_Piece]] = []
    for piece in pieces:
        if groups and piece.inside_word:
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return [
        Entity(group[0].tag, group[0].score, group[0].start, group[-1].end, text[group[0].start : group[-1].end])
        for group in groups
    ]


def _entities(text: str, words: list[Entity]) -> list[Entity]:
    """Words in a row with one label are one entity, unless a B- begins another; those outside are left out."""
    groups: list[list[Entity]] = []
    for word in words:
        if groups and not word.label.startswith("B-") and _kind(word.label) == _kind(groups[-1][-1].label):
            groups[-1].append(word)
        else:
            groups.append([word])
    entities = []
    for group in groups:
        label = group[0].label.split("-", 1)[-1]
        start, end = group[0].start, group[-1].end
        if label != OUTSIDE:
            score = sum(word.score for word in group) / len(group)
            entities.append(Entity(label, score, start, end, text[start:end]))
    return entities


def _kind(tag: str) -> str:
    return tag[2:] if tag.startswith(("B-", "I-")) else tag
