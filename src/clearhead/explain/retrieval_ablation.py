"""Retrieval ablation: passages are left out, or exchanged, and what was written moves or not: does a store matter?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearhead.explain.capabilities import can_generate, has_tokenizer
from clearhead.explain.finding import Finding
from clearhead.explain.inference import eval_mode
from clearhead.explain.passages import ASKED, SETTINGS
from clearhead.explain.question import Question
from clearhead.explain.retrieved import NeighborPassage, RetrievedText, reads_neighbors, retrieved
from clearhead.explain.scores import batch_size_for
from clearhead.explain.settings import SEED
from clearhead.pipeline import Pipeline, as_text
from clearhead.text.units import display_texts
from clearhead.units import TokenUnit


@dataclass(frozen=True)
class PassageChange:
    """What was done to the passages.

    how       "one": a passage is left out; "all": all are, as with no store; "random": others in their place
    passage   which one, of the finding's; None for "all" and "random"
    gain      bits by which the passages make a token of the text likelier than it is now, on average
    moved     bits by which the probabilities of all words move (KL divergence), on average
    others    how many tokens would be others: the likeliest one has changed
    """

    how: str
    passage: int | None
    gain: float
    moved: float
    others: int


@dataclass(frozen=True, repr=False, eq=False)
class RetrievalAblation(Finding):
    """
    tokens        the whole text: what was given, then what was written; `begin` is where that begins
    filler        so many tokens at the beginning only fill the first chunk up
    passages      those of every chunk, the nearest first
    rows          the tokens (places in `tokens`) that passages can have had a part in
    probability   (rows,): of each of these tokens, with all passages
    changes       what was done: every passage left out by itself, then all, then random ones
    gain          (changes, rows): log2 of p(token) with the passages, minus that after the change. Nan before it acts
    moved         (changes, rows): the KL divergence from the probabilities with the passages to those after, in bits
    instead       (changes, rows): the token that is likeliest after the change
    answer        what was written after the text
    alone         what the model writes there without passages; None where it did not write itself
    """

    kind: ClassVar[str] = "retrieval-ablation"

    model: str
    store: str
    tokens: Sequence[TokenUnit]
    begin: int
    filler: int
    chunk_size: int
    passages: list[NeighborPassage]
    rows: list[int]
    probability: np.ndarray
    changes: list[PassageChange]
    gain: np.ndarray
    moved: np.ndarray
    instead: list[list[str]]
    answer: str
    alone: str | None

    @property
    def without(self) -> PassageChange:
        """The summary: what becomes of the text without the store."""
        return next(one for one in self.changes if one.how == "all")

    @property
    def random(self) -> PassageChange | None:
        """The same with random passages; None where the store has none to give."""
        return next((one for one in self.changes if one.how == "random"), None)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["how", "chunk", "rank", "document", "position", "token", "probability", "gain", "moved", "instead"]
        for n, change in enumerate(self.changes):
            one = None if change.passage is None else self.passages[change.passage]
            which = ["", "", ""] if one is None else [one.chunk, one.rank, one.document]
            for k, row in enumerate(self.rows):
                if np.isfinite(self.gain[n, k]):
                    yield [change.how, *which, row, self.tokens[row].text, float(self.probability[k]),
                           float(self.gain[n, k]), float(self.moved[n, k]), self.instead[n][k]]  # fmt: skip


def retrieval_ablation(
    pipe: Pipeline,
    text: str,
    *,
    store: Any = None,
    neighbors: int | None = None,
    target: str | None = None,
    max_new_tokens: int | None = None,
    ask: bool | None = None,
    seed: int = 0,
) -> RetrievalAblation:
    """Leave each passage out, then all of them, then give random ones: how does every written token move?

    seed   of the random passages; the rest as of `passages`
    """
    with eval_mode(pipe.model):
        read = retrieved(
            pipe, text, store=store, neighbors=neighbors, target=target, max_new_tokens=max_new_tokens, ask=ask
        )
        whole, *changed = _log_probs(read, seed)
        alone = _alone(pipe, read) if target is None and read.begin < len(read.ids) else None
    ids = torch.tensor([read.ids[n] for n in read.acted_on])[:, None]
    chosen = whole.gather(1, ids)[:, 0]
    names = [("one", n) for n in range(len(read.passages))] + [("all", None), ("random", None)]
    gain, moved, instead, changes = [], [], [], []
    for (how, passage), after in zip(names, changed, strict=False):
        first = 0 if passage is None else read.passages[passage].chunk * read.chunk_size  # in rows
        bits = ((chosen - after.gather(1, ids)[:, 0]) / math.log(2)).numpy().copy()
        apart = (_divergence(whole, after) / math.log(2)).numpy().copy()
        bits[:first] = apart[:first] = np.nan
        best = after.argmax(-1)
        others = int((best != whole.argmax(-1))[first:].sum())
        gain.append(bits)
        moved.append(apart)
        instead.append(display_texts(pipe.tokenizer, best.tolist()))
        changes.append(PassageChange(how, passage, float(np.nanmean(bits)), float(np.nanmean(apart)), others))
    return RetrievalAblation(
        pipe.name, read.store_name, read.units, read.begin, read.filler, read.chunk_size, read.passages,
        list(read.acted_on), chosen.exp().numpy(), changes, np.stack(gain), np.stack(moved), instead,
        read.answer, alone,
    )  # fmt: skip


def _alone(pipe: Pipeline, read: RetrievedText) -> str:
    """What the model writes with no store, from the same beginning."""
    written = as_text(pipe).write(read.prompt, store=None, num_return_sequences=1, log_probs=False, **read.options)
    return written[0].new_text.strip()


def _log_probs(read: RetrievedText, seed: int) -> list[Tensor]:
    """Of the tokens that passages act on, (rows, vocabulary): with all passages, without each, without any, with random
    ones where the store can give such."""
    given = [read.neighbor_ids]
    for one in read.passages:
        left = read.neighbor_ids.clone()
        left[:, one.chunk, one.rank] = read.provider.padding_id  # which nobody sees
        given.append(left)
    found = _run(read, given)
    found += _run(read, [None])
    drawn = _random_ids(read, seed)
    return found if drawn is None else [*found, *_run(read, [drawn])]


def _run(read: RetrievedText, given: Sequence[Tensor | None]) -> list[Tensor]:
    model, rows = read.model, list(read.acted_on)
    where = torch.tensor([n - 1 for n in rows], device=model.device)
    at_once = max(1, batch_size_for(len(read.ids), model.config.hidden_size, 1))
    found: list[Tensor] = []
    for first in range(0, len(given), at_once):
        part = given[first : first + at_once]
        neighbors = None if part[0] is None else torch.cat([ids for ids in part if ids is not None])
        out = model(input_ids=read.input_ids.expand(len(part), -1), neighbor_ids=neighbors)
        found += out.logits[:, where].double().log_softmax(-1).cpu()
    return found


def _random_ids(read: RetrievedText, seed: int) -> Tensor | None:
    """(1, chunks, k, tokens), for every chunk of passages that were not found for it; None where the store cannot draw
    so many."""
    store: Any = read.provider.store
    if not callable(getattr(store, "sample", None)):
        return None
    _, chunks, k, _ = read.neighbor_ids.shape
    rows = []
    for chunk in range(chunks):
        found = {(one.document, one.position) for one in read.passages if one.chunk == chunk}
        drawn = store.sample(2 * k, seed + chunk)
        others = [hit for hit in drawn if (hit.document, hit.position) not in found][:k]
        if len(others) < k:
            return None
        rows.append(read.provider.rows(others))
    return torch.tensor([rows], device=read.model.device)


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    """(rows,): of log-probabilities (rows, vocabulary), in nats."""
    return torch.where(before > -math.inf, before.exp() * (before - after), 0.0).sum(-1).clamp(min=0)


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, ask: str, **values: Any) -> RetrievalAblation:
    return retrieval_ablation(pipe, text, ask=ASKED[ask], **values)


QUESTION = Question(
    name="retrieval-ablation", kind="retrieval-ablation", group="retrieval", answer=_answer,
    checks=(has_tokenizer, reads_neighbors, can_generate), params=(*SETTINGS, SEED),
)  # fmt: skip
