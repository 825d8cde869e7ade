"""The search, on a map: where a text lies among the passages of a store, and which lie nearest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.explain.capabilities import has_tokenizer
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_count
from clearhead.explain.passages import ASK, ASKED, STORE
from clearhead.explain.question import Question
from clearhead.explain.retrieved import reads_neighbors, searched_by, store_name, store_of
from clearhead.explain.settings import SEED, Setting, count
from clearhead.explain.word_map import principal_components
from clearhead.messages import say
from clearhead.pipeline import Pipeline
from clearhead.retrieval.metrics import likeness


@dataclass(frozen=True)
class MappedPassage:
    """A passage on the map. rank: 0 is the nearest, None for one that was drawn at random; score: as a search's."""

    text: str
    document: str
    position: int
    score: float
    rank: int | None
    source: str = ""


@dataclass(frozen=True, repr=False, eq=False)
class StoreMap(Finding):
    """
    asked       the text that is looked for
    encoder     whose vectors are compared, `width` numbers each; `metric` is how
    count       how many passages the store has
    passages    the nearest, best first, then some others for a background
    places      (1 + passages, 2): the text and the passages on the plane of their first two principal components
    explained   the share of the differences that each direction of the plane keeps
    """

    kind: ClassVar[str] = "store-map"

    model: str
    store: str
    asked: str
    encoder: str
    metric: str
    width: int
    count: int
    passages: list[MappedPassage]
    places: np.ndarray
    explained: list[float]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["rank", "document", "position", "score", "x", "y", "text"]
        for one, place in zip(self.passages, self.places[1:], strict=True):
            rank = "" if one.rank is None else one.rank + 1
            yield [rank, one.document, one.position, one.score, *map(float, place), one.text]


def store_map(
    pipe: Pipeline,
    text: str,
    *,
    store: Any = None,
    near: int = 40,
    background: int = 60,
    ask: bool | None = None,
    seed: int = 0,
) -> StoreMap:
    """The passages nearest to a text and some others, on a plane.

    store        a store or its folder; None: the pipeline's own
    near         how many of the nearest
    background   how many of the rest, drawn at random
    ask          the text is a question, and looked for as one (see `passages`)
    """
    checked_count("near", near)
    checked_count("background", background, least=0)
    opened: Any = store_of(pipe, store)
    if not all(callable(getattr(opened, name, None)) for name in ("sample", "keys")):
        raise InputError(say("explain.no_map", got=type(opened).__name__))
    words = searched_by(pipe, text, ask)
    hits = opened.search(words, near, vectors=True)
    known = {(hit.document, hit.position) for hit in hits}
    drawn = opened.sample(background + near, seed, vectors=True)
    rest = [hit for hit in drawn if (hit.document, hit.position) not in known][:background]
    query = opened.keys([words])
    vectors = np.concatenate([query, *(hit.vector[None] for hit in (*hits, *rest))])
    places, explained = principal_components(vectors)
    settings = opened.settings
    scores = [hit.score for hit in hits] + [likeness(query[0], hit.vector, settings.metric) for hit in rest]
    mapped = [
        MappedPassage(hit.text, hit.document, hit.position, score, n if n < len(hits) else None, hit.source)
        for n, (hit, score) in enumerate(zip((*hits, *rest), scores, strict=True))
    ]
    return StoreMap(
        pipe.name, store_name(opened), text.strip(), settings.encoder, settings.metric, settings.width, len(opened),
        mapped, places, explained,
    )  # fmt: skip


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, k: int, ask: str, **values: Any) -> StoreMap:
    return store_map(pipe, text, near=k, ask=ASKED[ask], **values)


QUESTION = Question(
    name="store-map", kind="store-map", group="retrieval", answer=_answer, checks=(has_tokenizer, reads_neighbors),
    params=(
        STORE, count("store-map.k", 40), ASK, SEED,
        Setting(name="background", key="store-map.background", type=int, default=60, least=0, most=1000),
    ),
)  # fmt: skip
