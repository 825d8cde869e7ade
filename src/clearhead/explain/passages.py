"""Retrieved passages: what a model looked up for each chunk of a text, and which of their tokens it looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from clearhead.explain.capabilities import can_generate, has_tokenizer
from clearhead.explain.finding import Finding
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.explain.retrieved import NeighborPassage, RetrievedText, reads_neighbors, retrieved
from clearhead.explain.settings import NEW_TOKENS, WRITTEN_AFTER, Setting, StoreSetting
from clearhead.nn.tracing import Trace, tap_points, trace
from clearhead.pipeline import Pipeline
from clearhead.units import TokenUnit

ENCODER = "neighbor_encoder.layers"


@dataclass(frozen=True, repr=False, eq=False)
class Passages(Finding):
    """
    store        whose passages these are
    metric       what their scores are
    tokens       the whole text: what was given, then what was written
    begin        where the written part begins
    filler       so many tokens at the beginning only fill the first chunk up
    chunk_size   tokens of a chunk
    answer       what was written, as a text
    passages     those of every chunk, the nearest first
    rows         the tokens (places in `tokens`) that passages can have had a part in
    layers       those with chunked attention
    weights      (layers, heads, rows, passages of a chunk, their tokens): how much each token of the passages was
                 looked at when a token was written; what is not there has 0
    null         (layers, heads, rows): the same of the learned key that stands for none of them; None without one
    encoder      (encoder layers, chunks, passages, their tokens, tokens of the chunk): how much each token of a passage
                 looked at each token of the chunk when the passage was read, over all heads; None where the encoder
                 does not look at it
    """

    kind: ClassVar[str] = "passages"

    model: str
    store: str
    metric: str
    tokens: Sequence[TokenUnit]
    begin: int
    filler: int
    chunk_size: int
    answer: str
    passages: list[NeighborPassage]
    rows: list[int]
    layers: list[int]
    weights: np.ndarray
    null: np.ndarray | None
    encoder: np.ndarray | None

    def share(self, passage: NeighborPassage) -> np.ndarray:
        """(rows,): how much of all attention to its chunk's passages went to this one, over all layers and heads."""
        mean: np.ndarray = self.weights[:, :, :, passage.rank].sum(-1).mean((0, 1))
        chunk = np.array(self.rows) // self.chunk_size - 1
        return np.where(chunk == passage.chunk, mean, 0.0)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["position", "token", "chunk", "rank", "document", "score", "layer", "head", "share", "most_looked_at"]
        for n, row in enumerate(self.rows):
            for one in self.passages:
                if one.chunk != row // self.chunk_size - 1:
                    continue
                for which, layer in enumerate(self.layers):
                    for head in range(self.weights.shape[1]):
                        own = self.weights[which, head, n, one.rank, : len(one.tokens)]
                        best = one.tokens[int(own.argmax())].text if len(own) else ""
                        yield [row, self.tokens[row].text, one.chunk, one.rank, one.document, one.score, layer, head,
                               float(own.sum()), best]  # fmt: skip


def passages(
    pipe: Pipeline,
    text: str,
    *,
    store: Any = None,
    neighbors: int | None = None,
    target: str | None = None,
    max_new_tokens: int | None = None,
    ask: bool | None = None,
) -> Passages:
    """What a RETRO looked up for each chunk of a text, and how much each token that was written took from which token.

    store            a store or its folder; None: the pipeline's own
    neighbors        passages for every chunk; None: 2
    target           what is written after the text, in place of what the model writes
    max_new_tokens   how many tokens it writes (0: none)
    ask              the text is a question, laid so that it ends with a chunk; None: where it ends with "?" and is
                     shorter than a chunk
    """
    with eval_mode(pipe.model):
        read = retrieved(
            pipe, text, store=store, neighbors=neighbors, target=target, max_new_tokens=max_new_tokens, ask=ask
        )
        encodes = [name for name in tap_points(pipe.model) if _is_encoder_cross(name)]
        with trace(pipe.model, "layers.*.chunked_attention.weights", *encodes) as seen:
            pipe.model(input_ids=read.input_ids, neighbor_ids=read.neighbor_ids)
    longest = max(len(one.tokens) for one in read.passages)
    layers, weights, null = _decoder_weights(seen, read, longest)
    settings = getattr(read.provider.store, "settings", None)
    return Passages(
        pipe.name, read.store_name, getattr(settings, "metric", ""), read.units, read.begin, read.filler,
        read.chunk_size, read.answer,
        read.passages, list(read.acted_on), layers, weights, null, _encoder_weights(seen, encodes, read, longest),
    )  # fmt: skip


def _is_encoder_cross(name: str) -> bool:
    return name.startswith(f"{ENCODER}.") and name.endswith(".cross_attention.weights")


def _decoder_weights(seen: Trace, read: RetrievedText, longest: int) -> tuple[list[int], np.ndarray, np.ndarray | None]:
    """From a row for every chunk to a row for every token: the one at place s of chunk c is written at the slot s of
    the chunk before."""
    names = sorted(seen, key=lambda name: int(name.split(".")[1]) if name.startswith("layers.") else -1)
    names = [name for name in names if name.startswith("layers.")]
    size, count = read.chunk_size, read.neighbor_ids.shape[2]
    folds = [(token // size - 1, token % size) for token in read.acted_on]
    chunks, slots = (list(part) for part in zip(*folds, strict=True))
    rows: list[Tensor] = [seen[name][chunks, :, slots].float().cpu() for name in names]  # (rows, heads, keys)
    all_keys = np.stack([row.transpose(0, 1).numpy() for row in rows])  # (layers, heads, rows, keys)
    extra = all_keys.shape[-1] - count * read.neighbor_ids.shape[3]
    null = all_keys[..., 0] if extra else None
    weights = all_keys[..., extra:].reshape(*all_keys.shape[:3], count, -1)[..., :longest]
    return [int(name.split(".")[1]) for name in names], weights, null


def _encoder_weights(seen: Trace, names: list[str], read: RetrievedText, longest: int) -> np.ndarray | None:
    if not names:
        return None
    found = np.stack(
        [seen[name].float().mean(1).cpu().numpy() for name in names]
    )  # (layers, chunks · k, tokens, chunk)
    return found.reshape(len(names), read.chunks, read.neighbor_ids.shape[2], *found.shape[2:])[..., :longest, :]


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, ask: str, **values: Any) -> Passages:
    return passages(pipe, text, ask=ASKED[ask], **values)


STORE = StoreSetting(name="store", key="passages.store")
NEIGHBORS = Setting(name="neighbors", key="passages.neighbors", type=int, least=1, most=16)
ASK = Setting(name="ask", key="passages.ask", type=Literal["auto", "yes", "no"], default="auto")
ASKED = {"auto": None, "yes": True, "no": False}
SETTINGS = (STORE, NEIGHBORS, WRITTEN_AFTER, NEW_TOKENS, ASK)

QUESTION = Question(
    name="passages", kind="passages", group="retrieval", answer=_answer,
    checks=(has_tokenizer, reads_neighbors, can_generate), params=SETTINGS,
)  # fmt: skip
