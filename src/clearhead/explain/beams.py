"""Beam search as a growing tree: what was followed, what was dropped, what came to an end, and how the ends rank.

The tree is not made again beside the search: `generate` itself tells what it considered, so both agree to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.capabilities import can_generate, has_tokenizer
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_count
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import NEW_TOKENS, Setting
from clearhead.explain.word_choice import text_or_none
from clearhead.messages import say
from clearhead.pipeline import Pipeline, as_text
from clearhead.text.units import display_texts

BeamStatus = Literal["live", "dropped", "finished", "stopped"]
_POSSIBLE = -1e8  # below it lies what a rule forbids


@dataclass(frozen=True)
class Node:
    """One token of the tree.

    parent     the node it goes on from; -1: the text that was given
    step       which new token it is, from 1
    log_prob   of this token; `total` of all tokens up to it
    status     "live": the search went on from it; "dropped": others were likelier; "finished": a text ends with it;
               "stopped": still likely, but nothing it could lead to would have won
    score      of a finished text: total / length ** length_penalty
    rank       of a finished text that is among the answers: 1 is the best
    """

    id: int
    parent: int
    step: int
    token: str
    token_id: int
    log_prob: float
    total: float
    status: BeamStatus
    score: float | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Hypothesis:
    """One of the answers. nodes: from the first token to the last."""

    rank: int
    text: str
    nodes: list[int]
    token_ids: list[int]
    total: float
    score: float | None  # None: greedy decoding ranks nothing


@dataclass(frozen=True, repr=False, eq=False)
class Beams(Finding):
    """The finding. `text` stands before the tree; of an encoder–decoder it is empty, and `source` is what was read."""

    kind: ClassVar[str] = "beams"

    model: str
    text: str
    source: str | None
    beams: int  # 1: greedy
    length_penalty: float
    steps: int
    nodes: list[Node]
    answers: list[Hypothesis]  # the best first

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["id", "parent", "step", "token", "token_id", "log_prob", "total", "status", "score", "rank"]
        for one in self.nodes:
            yield [one.id, one.parent, one.step, one.token, one.token_id, one.log_prob, one.total, one.status,
                   one.score, one.rank]  # fmt: skip


def beams(
    pipe: Pipeline,
    text: str | None = None,
    num_beams: int = 4,
    max_new_tokens: int | None = 12,
    *,
    length_penalty: float | None = None,
    early_stopping: bool | Literal["never"] | None = None,
    beside: int = 3,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> Beams:
    """How `pipe.generate(text, num_beams=…)` comes to its answer.

    num_beams        how many texts are followed at once; 1: greedy decoding, which follows the likeliest token only
    max_new_tokens   None: as many as the model's own settings allow
    length_penalty, early_stopping   as in `generate`; by default the model's own
    beside           greedy: how many of the tokens that were not taken are shown at each step
    """
    if not pipe.model.can_generate:
        raise InputError(say("explain.does_not_write", task=pipe.model.task))
    checked_count("beside", beside, least=0)
    options: dict[str, Any] = {
        "num_beams": num_beams, "num_beam_groups": 1, "diversity_penalty": 0.0, "num_return_sequences": 1,
        "do_sample": False, "max_new_tokens": max_new_tokens, "length_penalty": length_penalty,
        "early_stopping": early_stopping, "src_lang": src_lang, "tgt_lang": tgt_lang,
    }  # fmt: skip
    generation = as_text(pipe).start_generation(text, **options)
    run, target = generation.run, pipe.tokenizer.target
    tree = _Tree(lambda ids: display_texts(target, ids))
    with eval_mode(pipe.model):
        if num_beams > 1:
            run.finish(tree.considered)
        else:
            tree.follow(run.steps(), beside)
    nodes, ends = tree.ranked(num_beams)
    answers = []
    for rank, end in enumerate(ends, start=1):
        path = tree.path(end)
        ids = [nodes[n].token_id for n in path]
        shown = target.decode(ids, skip_special_tokens=True)
        answers.append(Hypothesis(rank, shown, path, ids, nodes[end].total, nodes[end].score))
    source = text if run.session.encoder_ids is not None else None
    before = "" if source is not None else text or ""
    return Beams(pipe.name, before, source, num_beams, run.options.length_penalty, tree.step, nodes, answers)


@dataclass
class _Tree:
    """The nodes so far, and which of them the search goes on from."""

    words: Any
    nodes: list[Node] = field(default_factory=list)
    tips: list[int] = field(default_factory=lambda: [-1])  # the node of every beam
    step: int = 0

    def _add(
        self, parent: int, token: int, log_prob: float, total: float, status: BeamStatus, score: float | None = None
    ) -> int:
        node = Node(len(self.nodes), parent, self.step, self.words([token])[0], token, log_prob, total, status, score)
        self.nodes.append(node)
        return node.id

    def considered(self, step: Any) -> None:
        """One step of the search (clearhead.generate.beam_search.BeamStep) of a single text."""
        self.step += 1
        names = ("parent", "token", "log_prob", "total", "ended", "score")
        rows = zip(*(getattr(step, name)[0].tolist() for name in names), strict=True)
        kept, made = step.keep[0].tolist(), {}
        for n, (parent, token, log_prob, total, ended, score) in enumerate(rows):
            if total < _POSSIBLE:
                continue
            status: BeamStatus = "finished" if ended else "live" if n in kept else "dropped"
            tip = self.tips[parent] if self.step > 1 else -1
            made[n] = self._add(tip, token, log_prob, total, status, score if ended else None)
        self.tips = [made.get(n, -1) for n in kept]

    def follow(self, steps: Any, beside: int) -> None:
        """Greedy decoding, with the tokens that came next in line at every step."""
        tip, total = -1, 0.0
        for step in steps:
            self.step += 1
            log_probs = step.logits[0].log_softmax(-1)
            own, over = int(step.tokens[0]), bool(step.finished[0])
            best = step.scores[0].topk(min(beside + 1, len(log_probs)))
            possible = [token for score, token in zip(*map(Tensor.tolist, best), strict=True) if math.isfinite(score)]
            log_prob = float(log_probs[own])
            status: BeamStatus = "finished" if over else "live"
            taken = self._add(tip, own, log_prob, total + log_prob, status)
            for token in [token for token in possible if token != own][:beside]:
                self._add(tip, token, float(log_probs[token]), total + float(log_probs[token]), "dropped")
            tip, total = taken, self.nodes[taken].total
            if over:
                break
        self.nodes[tip] = replace(self.nodes[tip], status="finished")

    def ranked(self, count: int) -> tuple[list[Node], list[int]]:
        """All nodes with their last status, and the answers' last nodes, the best first."""
        ended = [node for node in self.nodes if node.status == "finished"]
        ends = [node.id for node in sorted(ended, key=lambda node: -(node.score or 0.0))[:count]]
        final = []
        for node in self.nodes:
            if node.status == "live" and node.step == self.step:  # the search ended before it could
                node = replace(node, status="stopped")
            final.append(replace(node, rank=ends.index(node.id) + 1) if node.id in ends else node)
        return final, ends

    def path(self, node: int) -> list[int]:
        path = []
        while node >= 0:
            path.append(node)
            node = self.nodes[node].parent
        return path[::-1]


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, **values: Any) -> Beams:
    return beams(pipe, text_or_none(text), **values)


QUESTION = Question(
    name="beams", kind="beams", group="answer", answer=_answer, checks=(has_tokenizer, can_generate), text=False,
    params=(
        Setting(name="num_beams", key="beams.num_beams", type=int, default=4, least=1, most=16),
        replace(NEW_TOKENS, key="write_at_most", default=12, least=1),
        Setting(name="length_penalty", key="beams.length_penalty", type=float, least=-10, most=10),
        Setting(name="beside", key="beams.beside", type=int, default=3, least=0, most=20),
    ),
)  # fmt: skip
