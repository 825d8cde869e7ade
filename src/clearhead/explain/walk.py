"""The walk: one token of a prompt followed through one layer of a real model, with the actual numbers.

Embedding and position → q, k, v → split into heads → score → mask → softmax → weighted sum → merge → project →
feed-forward → the layers above → scores for every word → the choice. A decoder's token looks at the source, too.
Recurrent layers have a walk of their own (recurrent_path.py): gates → cell → state, and attention over encoder states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from clearhead.errors import InputError
from clearhead.explain.attention_path import AttentionPath
from clearhead.explain.attention_site import attention_site, written_rows
from clearhead.explain.capabilities import has_attention_or_recurrence, no_segment_memory, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_index
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.question import Question
from clearhead.explain.recurrence import recurrent_layers
from clearhead.explain.recurrent_path import RecurrentPath
from clearhead.explain.settings import HEAD, LAYER, POSITION, STACK, TARGET, Setting, count
from clearhead.explain.token_path import WalkStep
from clearhead.messages import say
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.units import WrittenUnit


@dataclass(frozen=True, repr=False)
class Walk(Finding):
    """The finding. `tokens` are those the columns speak of; `token` is the followed one.

    heads     0 where the layer has none: a recurrent one
    side      "" for a model of one stack, else "encoder" or "decoder"; `source` is then what the encoder reads
    written   of a decoder, what is written at this step
    """

    kind: ClassVar[str] = "walk"

    model: str
    tokens: list[str]
    position: int
    layer: int
    head: int
    layers: int
    heads: int
    steps: list[WalkStep]
    side: str = ""
    source: list[str] = field(default_factory=list)
    written: WrittenUnit | None = None

    @property
    def token(self) -> str:
        return self.tokens[self.position]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["step", "title", "tap", "label", "place", "number"]
        for n, step in enumerate(self.steps, start=1):
            at = [n, step.title, step.tap]
            for vector in step.vectors:
                yield from ([*at, vector.label, d, value] for d, value in enumerate(vector.numbers))
            for column in step.columns:
                pairs = zip(step.tokens or self.tokens, column.numbers, strict=True)
                yield from ([*at, column.label, token, value] for token, value in pairs)
            yield from ([*at, "probability", token, value] for token, value in step.guesses)


def walk(
    pipe: Pipeline,
    text: str,
    *,
    layer: int = 0,
    head: int = 0,
    position: int | None = None,
    numbers: int = 6,
    top_k: int = 10,
    side: str | None = None,
    target: str | None = None,
) -> Walk:
    """Follow the token at `position` (counted from the end if negative) through `layer`, looking at one `head`.

    side     of an encoder–decoder: which stack is followed, "decoder" (the default) or "encoder"
    target   what the decoder has written so far; by default the model's own answer
    """
    both = pipe.model.is_encoder_decoder
    if side == "cross":
        raise InputError(say("explain.encoder_or_decoder", side=repr(side)))
    site = attention_site(pipe, text, None, target, side or ("decoder" if both else "auto"))
    units = site.queries
    if position is None:
        position = next((n for n in reversed(range(len(units))) if not units[n].special), -1)
    position = checked_index("position", position, len(units), say("explain.there_are_units", count=len(units)))
    (layer,) = site.layers([layer])
    recurs = any(one.layer == layer for one in recurrent_layers(pipe.model, site.prefix.rstrip(".")))
    if not recurs or head:
        (head,) = site.heads([head])
    path = RecurrentPath if recurs else AttentionPath
    with eval_mode(pipe.model), trace(pipe.model, *path.taps(site, layer)) as seen:
        call(pipe, site.reading)
    steps = path(site, seen, layer, head, position, numbers).steps(top_k)
    written = written_rows(pipe, site.reading)[position] if site.side == "decoder" else None
    return Walk(
        pipe.name, [unit.text for unit in units], position, layer, head, len(site.stack.layers),
        0 if recurs else site.head_count, list(steps), "" if site.side == "self" else site.side,
        [unit.text for unit in site.reading.units] if both else [],
        written if isinstance(written, WrittenUnit) else None,
    )  # fmt: skip


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, k: int, side: str, target: str | None, **values: Any) -> Walk:
    return walk(pipe, text, top_k=k, side=None if side == "auto" else side, target=target, **values)


QUESTION = Question(
    name="walk", kind="walk", group="answer", answer=_answer,
    checks=(reads_one_input, has_attention_or_recurrence, no_segment_memory),
    params=(
        LAYER, HEAD, replace(POSITION, key="walk.position"),
        Setting(name="numbers", key="walk.numbers", type=int, default=6, least=1, most=4096), count("walk.k", 10),
        replace(STACK, key="walk.side"), TARGET,
    ),
)  # fmt: skip
