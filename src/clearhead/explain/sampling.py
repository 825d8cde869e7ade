"""Sampling, how the next token is drawn: the model's probabilities, and what temperature, top-k and top-p make of them.

Warpers, their order and the draws are those of `generate` itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.capabilities import can_generate, has_tokenizer
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_count
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import SEED, Setting, count
from clearhead.explain.word_choice import text_or_none
from clearhead.messages import say
from clearhead.pipeline import Pipeline, as_text
from clearhead.text.units import display_texts

SHAPES = ("temperature", "top_k", "top_p")  # in the order in which they act
_OTHERS = ("min_p", "typical_p", "epsilon_cutoff", "eta_cutoff")  # act after them, where a model asks for them


@dataclass(frozen=True)
class SampledCandidate:
    """One token: its probability as the model gives it, and after all warpers (0: it was cut)."""

    token: str
    token_id: int
    logit: float
    before: float
    after: float


@dataclass(frozen=True)
class Stage:
    """One warper. removed_mass: the share of the probability that it took away; remaining: how many tokens are left."""

    name: str
    value: float
    removed_mass: float
    remaining: int


@dataclass(frozen=True)
class Draw:
    """What was drawn with this seed."""

    seed: int
    token: str
    token_id: int


@dataclass(frozen=True, repr=False, eq=False)
class Sampling(Finding):
    """The finding.

    candidates     the likeliest tokens, the likeliest first
    other_logits   the scores of all other tokens that are allowed, the highest first: with them whoever holds the
                   finding can try other settings without the model
    stages         the filters in force, in their order; `settings` holds the three that can be tried (None: not asked)
    """

    kind: ClassVar[str] = "sampling"

    model: str
    text: str
    source: str | None
    settings: dict[str, float | None]
    stages: list[Stage]
    candidates: list[SampledCandidate]
    other_logits: np.ndarray
    draws: list[Draw]

    @property
    def remaining(self) -> int:
        """How many tokens can be drawn."""
        return self.stages[-1].remaining if self.stages else len(self.candidates) + len(self.other_logits)

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["rank", "token", "token_id", "logit", "before", "after"]
        for rank, one in enumerate(self.candidates, start=1):
            yield [rank, one.token, one.token_id, one.logit, one.before, one.after]


def sampling(
    pipe: Pipeline,
    text: str | None = None,
    temperature: float | None = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    *,
    seed: int = 0,
    draws: int = 12,
    show: int = 200,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
) -> Sampling:
    """The probabilities of the next token after `text` (of an encoder–decoder: of its first word), also warped.

    temperature, top_k, top_p   as in `generate`; None: as the model's own settings have it
    draws                       how many tokens are drawn, with seed, seed + 1, …: what generate(seed=…) would write
    show                        how many candidates are named
    """
    if not pipe.model.can_generate:
        raise InputError(say("explain.does_not_write", task=pipe.model.task))
    checked_count("draws", draws), checked_count("show", show)
    options: dict[str, Any] = {
        "do_sample": True, "num_beams": 1, "num_return_sequences": draws, "seed": seed, "temperature": temperature,
        "top_k": top_k, "top_p": top_p, "src_lang": src_lang, "tgt_lang": tgt_lang,
    }  # fmt: skip
    run = as_text(pipe).start_generation(text, **options).run
    with eval_mode(pipe.model):
        steps = run.steps()
        step = next(steps)
        if run.options.forced_bos_token_id is not None and run.session.prompt_length == 1:
            step = next(steps)  # the first is the name of a language, which nobody chooses
        tokens, scores = run.session.tokens[:1], step.logits[:1].float()
    in_force = {name: getattr(run.options, name) for name in (*SHAPES, *_OTHERS)}
    names = [name for name, value in in_force.items() if value is not None]
    for process in run.processors[: len(run.processors) - len(run.warpers)]:
        scores = process(tokens, scores)
    allowed, before = scores[0], scores.softmax(-1)[0]
    stages = []
    for name, apply in zip(names, run.warpers[: len(names)], strict=True):
        probabilities = scores.softmax(-1)
        scores = apply(tokens, scores)
        masked = scores == -float("inf")
        stages.append(Stage(name, float(in_force[name]), float(probabilities[masked].sum()), int((~masked).sum())))
    candidates, other_logits = _candidates(pipe, allowed, before, scores.softmax(-1)[0], show)
    ids = step.tokens.tolist()
    texts = display_texts(pipe.tokenizer.target, ids)
    drawn = [Draw(seed + n, token, id_) for n, (token, id_) in enumerate(zip(texts, ids, strict=True))]
    source = text if run.session.encoder_ids is not None else None
    settings = {name: None if in_force[name] is None else float(in_force[name]) for name in SHAPES}
    before_text = "" if source is not None else text or ""
    return Sampling(pipe.name, before_text, source, settings, stages, candidates, other_logits, drawn)


def _candidates(
    pipe: Pipeline, allowed: Tensor, before: Tensor, after: Tensor, show: int
) -> tuple[list[SampledCandidate], np.ndarray]:
    """The likeliest tokens, and the scores of the others; what a rule forbids is left out."""
    ordered = allowed.sort(descending=True, stable=True)
    possible = int((ordered.values > -float("inf")).sum())
    count = min(show, possible)
    ids = ordered.indices[:count].tolist()
    words = display_texts(pipe.tokenizer.target, ids)
    numbers = (ordered.values[:count].tolist(), before[ids].tolist(), after[ids].tolist())
    rows = zip(words, ids, *numbers, strict=True)
    return [SampledCandidate(*row) for row in rows], ordered.values[count:possible].cpu().numpy()


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, k: int, **values: Any) -> Sampling:
    return sampling(pipe, text_or_none(text), show=k, **values)


QUESTION = Question(
    name="sampling", kind="sampling", group="answer", answer=_answer, checks=(has_tokenizer, can_generate), text=False,
    params=(
        Setting(name="temperature", key="sampling.temperature", type=float, default=1.0, least=0.01, most=100),
        Setting(name="top_k", key="sampling.top_k", type=int, least=1, most=1_000_000),
        Setting(name="top_p", key="sampling.top_p", type=float, least=0.001, most=1.0), SEED,
        Setting(name="draws", key="sampling.draws", type=int, default=12, least=1, most=1000),
        count("sampling.k", 200),
    ),
)  # fmt: skip
