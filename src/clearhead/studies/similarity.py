"""Why the raw vectors of a language model are poor for similarity: cosines of sentences that mean the same, or do not.

Reimers and Gurevych (2019) found [CLS] vectors and averages of raw BERT worse than averaged GloVe vectors; Ethayarajh
(2019) found why: the vectors fill a narrow cone, so that any two of them point about the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models.sentence import Pooling
from clearhead.pipeline import TextPipeline
from clearhead.studies.frozen import encoder, frozen, longest
from clearhead.studies.study import OnProgress, Study, silent
from clearhead.train.data.sources import open_source
from clearhead.train.data.types import Batch, Example
from clearhead.train.objectives.fields import number_of, text_of
from clearhead.train.objectives.sequence import SequenceObjective

Pair = tuple[str, str, float]  # two sentences, and how alike they are: any scale, more is more

# A sentence; the same in other words; and other things said in the same words.
TRIPLES = [
    ("The doctor told him to stop smoking.", "His physician advised giving up cigarettes.",
     "He told the doctor to stop smoking."),
    ("The child fell asleep on the sofa.", "A little boy dozed off on the couch.",
     "The sofa fell on the sleeping child."),
    ("It has not rained here for months.", "The region is suffering a long drought.",
     "It has rained here for months."),
    ("The company dismissed half of its staff.", "Every second employee of the firm lost the job.",
     "Half of the staff dismissed the company."),
    ("She finished the race before everyone else.", "Nobody was faster than her; she won.",
     "Everyone else finished the race before her."),
    ("The bridge is closed because of repairs.", "Maintenance work prevents traffic from crossing the river.",
     "The bridge is open after the repairs."),
    ("I forgot my wallet at home.", "I came out without any money on me.",
     "I forgot my home, not my wallet."),
    ("The film bored the whole audience.", "Everyone in the cinema found the movie dull.",
     "The whole audience filmed the bore."),
    ("Prices of houses rose sharply last year.", "Real estate became much more expensive within twelve months.",
     "Prices of houses fell sharply last year."),
    ("The thief escaped through the window.", "The burglar climbed out of the building and got away.",
     "The window escaped the thief."),
    ("My sister plays the violin beautifully.", "She is a gifted string player, this sibling of mine.",
     "My violin plays beautifully for my sister."),
    ("The soup is too hot to eat.", "Let the broth cool down first, or you will burn your tongue.",
     "The soup is too cold to eat."),
    ("They cancelled the flight due to fog.", "Poor visibility grounded the plane.",
     "Due to the flight, they cancelled the fog."),
    ("The old man feeds the pigeons every day.", "Each morning an elderly gentleman gives the birds some bread.",
     "The pigeons feed the old man every day."),
    ("He speaks four languages fluently.", "He is a polyglot.",
     "Four languages speak fluently of him."),
    ("The battery of my phone is empty.", "My mobile has run out of power.",
     "My phone is full of empty batteries."),
    ("The teacher praised the pupil's essay.", "The composition earned the student a compliment in class.",
     "The pupil praised the teacher's essay."),
    ("We missed the last train.", "There was no more rail connection when we got to the station.",
     "We caught the last train."),
    ("The medicine relieved her pain.", "After taking the drug she no longer hurt.",
     "The pain relieved her of the medicine."),
    ("The dog chased the cat up a tree.", "The hound made the kitten flee into the branches.",
     "The cat chased the dog up a tree."),
    ("Scientists discovered a new planet.", "Astronomers have found a world that was unknown until now.",
     "A new planet discovered the scientists."),
    ("The harvest was destroyed by hail.", "A storm of ice ruined the crops.",
     "The hail was destroyed by the harvest."),
    ("She accepted the offer immediately.", "She said yes without hesitating.",
     "She refused the offer immediately."),
    ("The museum is free on Sundays.", "You need no ticket for the gallery at the end of the week.",
     "The museum is closed on Sundays."),
]  # fmt: skip
# Pairs that mean the same, and pairs of sentences that have nothing to do with each other.
BUILT_IN: list[Pair] = [(first, same, 1.0) for first, same, _ in TRIPLES] + [
    (first, TRIPLES[n - 1][1], 0.0) for n, (first, _, _) in enumerate(TRIPLES)
]
SAME_WORDS = [(first, other) for first, _, other in TRIPLES]

# From the embedding and every layer's output, and the mask, to a vector for each row. Of the last layer, where nothing
# else is said.
POOLINGS: dict[str, Callable[[tuple[Tensor, ...], Tensor], Tensor]] = {
    "[CLS]": lambda states, mask: Pooling(("cls",))(states[-1], mask),
    "mean": lambda states, mask: Pooling()(states[-1], mask),
    "mean, first and last": lambda states, mask: Pooling()((states[1] + states[-1]) / 2, mask),
    "mean, embeddings": lambda states, mask: Pooling()(states[0], mask),
}
CENTRED = "mean, centred"
OWN = "Sentence-BERT head"


@dataclass(frozen=True)
class PairCosines:
    """Cosines of one kind of vector.

    alike, unlike   their mean over the pairs of the upper and of the lower half of the scale
    gap             how far apart these two are
    auc             the chance that an alike pair has a higher cosine than an unlike one (a guess: 0.5)
    spearman        rank correlation of cosines and scores
    random          the mean over any two sentences that are no pair: near 0 if vectors point everywhere (anisotropy)
    same_words      the mean over pairs that say other things in the same words; None: only the built-in set has them
    """

    vectors: str
    alike: float
    unlike: float
    gap: float
    auc: float
    spearman: float
    random: float
    same_words: float | None


@dataclass(frozen=True, repr=False, eq=False)
class SimilarityStudy(Study):
    kind: ClassVar[str] = "similarity-study"

    model: str
    pairs: int
    built_in: bool
    rows: list[PairCosines]

    @property
    def conclusion(self) -> str:
        """What the figures show, in words that depend on them."""
        by = {row.vectors: row for row in self.rows}
        cls, best = by["[CLS]"], max(self.rows, key=lambda row: (row.auc, row.gap))
        crowd = "they crowd in a narrow cone, and" if cls.random > 0.5 else "they do not crowd, and"
        parts = [
            f"Any two [CLS] vectors have a mean cosine of {cls.random:.2f}: {crowd} meaning moves it by {cls.gap:.2f}.",
            f"An alike pair comes first in {cls.auc:.0%} of cases with [CLS], in {best.auc:.0%} with the best "
            f"({best.vectors}).",
        ]
        misled = [row for row in self.rows if row.same_words is not None and row.same_words > row.alike]
        if misled:
            which = "all of them" if len(misled) == len(self.rows) else f"{len(misled)} of {len(self.rows)}"
            parts.append(f"Saying other things in the same words brings sentences closer than saying the same in other "
                         f"words ({which}): these cosines follow words.")  # fmt: skip
        if OWN in by:
            parts.append("This model was trained for similarity, and all its vectors have learned from that; "
                         "a plain BERT shows them raw.")  # fmt: skip
        return " ".join(parts)


def similarity(
    pipe: TextPipeline,
    data: Any = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    on_progress: OnProgress = silent,
) -> SimilarityStudy:
    """How well cosines of different vectors tell sentences that mean the same from others.

    data    pairs with scores: a file with two sentences and a number in a row (STS benchmark, for instance), or a list
            of (sentence, sentence, score); None: a small set that is built in
    """
    pairs = BUILT_IN if data is None else _pairs(data)
    traps = SAME_WORDS if data is None else []
    scores = np.array([score for _, _, score in pairs])
    if len(set(scores.tolist())) < 2:
        raise InputError("All pairs have the same score, so there is nothing to tell apart.")
    high = scores > (scores.min() + scores.max()) / 2
    both = [(first, second) for first, second, _ in pairs] + traps
    texts = list(dict.fromkeys(text for pair in both for text in pair))
    number = {text: n for n, text in enumerate(texts)}
    first, second = np.array([[number[text] for text in pair] for pair in both]).T
    rows = []
    for name, table in _vectors(pipe, texts, cache, on_progress).items():
        unit = table / np.linalg.norm(table, axis=1, keepdims=True).clip(1e-12)
        every = (unit[first] * unit[second]).sum(1)
        cosines, trapped = every[: len(pairs)], every[len(pairs) :]
        alike, unlike = float(cosines[high].mean()), float(cosines[~high].mean())
        separation = auc(cosines[high], cosines[~high])
        apart = float(_no_pairs(unit, first, second).mean())
        same_words = float(trapped.mean()) if traps else None
        rows.append(
            PairCosines(name, alike, unlike, alike - unlike, separation, spearman(cosines, scores), apart, same_words)
        )
    return SimilarityStudy(pipe.name, len(pairs), data is None, rows)


def _pairs(data: Any) -> list[Pair]:
    """Rows of (sentence, sentence, score); by default the first three columns of a table."""
    if isinstance(data, list | tuple) and data and not isinstance(data[0], str | os.PathLike):
        pairs = [(str(a), str(b), float(score)) for a, b, score in data]
    else:
        named = not isinstance(data, str | os.PathLike) or str(data).endswith((".jsonl", ".json"))
        columns: dict[str, str | int] | None = None if named else {"text": 0, "text_pair": 1, "score": 2}
        pairs = []
        for record in open_source(data, columns=columns).records():
            missing = [name for name in ("text", "text_pair", "score") if name not in record]
            if missing:
                raise InputError(f"{record['where']} has no {' and no '.join(missing)}; a pair needs both and a score.")
            pairs.append((text_of(record, "text"), text_of(record, "text_pair"), number_of(record, "score")))
    if len(pairs) < 2:
        raise InputError("At least two pairs are needed to compare.")
    return pairs


class _Texts(SequenceObjective):
    """Sentences to be read, and nothing to be learned."""

    def collate(self, examples: Sequence[Example]) -> Batch:
        return Batch(self.inputs(examples), {}, 0)


def _vectors(pipe: TextPipeline, texts: list[str], cache: Any, on_progress: OnProgress) -> dict[str, np.ndarray]:
    """The vectors of every pooling: (texts, width)."""
    head: nn.Module | None = None if pipe.sentence is None else pipe.sentence.head
    encoder(pipe)

    def keep(states: tuple[Tensor, ...], batch: Batch) -> dict[str, list[Tensor]]:
        mask = batch.inputs["attention_mask"]
        vectors = {name: list(pool(states, mask)) for name, pool in POOLINGS.items()}
        return vectors if head is None else vectors | {OWN: list(head(states[-1], mask))}

    reader = _Texts(pipe.tokenizer, longest(pipe))
    examples = [reader.ids_of(text) for text in texts]
    kept = f"similarity {'' if head is None else head}"
    read = frozen(pipe, reader, examples, keep, kept, cache=cache, on_progress=on_progress)
    vectors = {name: read[name] for name in read.vectors}
    own = {OWN: vectors.pop(OWN)} if OWN in vectors else {}
    mean = vectors["mean"]
    return vectors | {CENTRED: mean - mean.mean(0)} | own


def _no_pairs(unit: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosines of any two sentences that do not stand in a pair together."""
    paired = np.eye(len(unit), dtype=bool)
    paired[first, second] = paired[second, first] = True
    cosines: np.ndarray = (unit @ unit.T)[np.triu(~paired)]
    if not len(cosines):
        raise InputError("Every sentence is paired with every other; give more pairs.")
    return cosines


def ranks(values: np.ndarray) -> np.ndarray:
    """From 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_ranks: np.ndarray = (last - (counts - 1) / 2)[place]
    return mean_ranks


def auc(high: np.ndarray, low: np.ndarray) -> float:
    """The chance that one of `high` is above one of `low`; ties count half (Mann and Whitney's U)."""
    rank = ranks(np.concatenate([high, low]))[: len(high)].sum()
    return float((rank - len(high) * (len(high) + 1) / 2) / (len(high) * len(low)))


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation of the ranks; 0 where one side does not vary."""
    a, b = (r - r.mean() for r in (ranks(x), ranks(y)))
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm else 0.0
