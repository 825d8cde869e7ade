"""The walk: one token of a prompt followed through one layer of a real model, with the actual numbers.

Embedding and position → q, k, v → split into heads → score → mask → softmax → weighted sum → merge → project →
feed-forward → the layers above → scores for every word → the choice. A decoder's token looks at the source, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.attention_site import AttentionSite, attention_site, written_rows
from clearhead.explain.capabilities import has_attention, no_segment_memory, reads_one_input
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_index
from clearhead.explain.inference import call, eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import HEAD, LAYER, POSITION, STACK, TARGET, Setting, count
from clearhead.messages import Message, say
from clearhead.nn.tracing import trace
from clearhead.pipeline import Pipeline
from clearhead.text.units import display_texts
from clearhead.units import WrittenUnit

Role = Literal["query", "key", "value", "plain"]


@dataclass(frozen=True)
class Vector:
    """A named vector: its first numbers, and how long it is."""

    label: Message
    numbers: list[float]
    length: int
    role: Role = "plain"


@dataclass(frozen=True)
class Column:
    """One number for every token that the followed one could look at. None: it is hidden from view."""

    label: Message
    numbers: list[float | None]
    is_probability: bool = False  # the numbers are parts of a whole and sum to one


@dataclass(frozen=True)
class WalkStep:
    """One stop on the path. `tap` is the name under which a trace keeps the tensor shown.

    tokens   those that the columns speak of, where they are not the walk's own: what an encoder has read
    """

    title: Message
    explanation: Message
    tap: str
    vectors: list[Vector] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    guesses: list[tuple[str, float]] = field(default_factory=list)
    tokens: list[str] | None = None


@dataclass(frozen=True, repr=False)
class Walk(Finding):
    """The finding. `tokens` are those the columns speak of; `token` is the followed one.

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
    (layer,), (head,) = site.layers([layer]), site.heads([head])
    with eval_mode(pipe.model), trace(pipe.model, *_taps(site, layer)) as seen:
        call(pipe, site.reading)
    path = _TokenPath(site, seen, layer, head, position, numbers)
    steps = [
        path.embedding(), *path.layers_below(), path.query_key_value(), path.attention(), *path.weighted_sum(),
        *path.cross_attention(), path.feed_forward(), *path.layers_above(), *path.final_norm(), *path.answer(top_k),
    ]  # fmt: skip
    written = written_rows(pipe, site.reading)[position] if site.side == "decoder" else None
    return Walk(
        pipe.name, [unit.text for unit in units], position, layer, head, len(site.stack.layers), site.head_count, steps,
        "" if site.side == "self" else site.side, [unit.text for unit in site.reading.units] if both else [],
        written if isinstance(written, WrittenUnit) else None,
    )  # fmt: skip


def _taps(site: AttentionSite, layer: int) -> list[str]:
    """The tensors that the steps show."""
    stack, model, prefix = site.stack, site.pipe.model, site.prefix
    at = f"{prefix}layers.{layer}."
    names = [f"{prefix}embed.{name}" for name in stack.embed.taps if name != "languages"]
    names += [f"{at}input|output", f"{at}attention.*", f"{at}feedforward.*"]
    if site.side == "decoder":
        names.append(f"{at}cross_attention.*")
    names.append(f"{prefix}layers.{len(stack.layers) - 1}.output")
    if stack.final_norm is not None:
        names.append(f"{prefix}final.norm")
    if model.language_head is not None and site.side != "encoder":
        names.append("logits")
    return names


@dataclass(frozen=True)
class _TokenPath:
    """One forward pass, seen from one token, one layer and one head: each method is a stop."""

    site: AttentionSite
    seen: Any  # tensors by their tap
    layer: int
    head: int
    position: int
    numbers: int

    @property
    def _at(self) -> str:
        return f"{self.site.prefix}layers.{self.layer}."

    def _vector(self, label: Message, name: str, role: Role = "plain", of_head: bool = False) -> Vector:
        tensor: Tensor = self.seen[name]
        # positions are the same for all rows of a batch, and may have only one
        row = tensor[0, self.head, self.position] if of_head else tensor[0, self.position]
        return Vector(label, [round(v, 4) for v in row[: self.numbers].float().tolist()], row.shape[-1], role)

    def _step(self, key: str, tap: str, *vectors: Vector, **values: Any) -> WalkStep:
        return WalkStep(say(f"walk.{key}.title"), say(f"walk.{key}.explanation", **values), tap, list(vectors))

    def embedding(self) -> WalkStep:
        embed = f"{self.site.prefix}embed."
        parts = [part for part in ("tokens", "positions", "segments") if embed + part in self.seen]
        vectors = [self._vector(say(f"walk.embed_{part}"), embed + part) for part in parts]
        output = self._vector(say("walk.enters"), f"{embed}output")
        unit = self.site.queries[self.position]
        return self._step(
            "embedding", f"{embed}output", *vectors, output, token=getattr(unit, "id", unit.text), width=output.length
        )

    def layers_below(self) -> Iterator[WalkStep]:
        if self.layer > 0:
            name = f"{self._at}input"
            key = "one_layer_below" if self.layer == 1 else "layers_below"
            yield self._step(key, name, self._vector(say("walk.layer_input", n=self.layer), name), count=self.layer)

    def query_key_value(self) -> WalkStep:
        roles: tuple[Role, ...] = ("query", "key", "value")
        vectors = [self._vector(say(f"walk.{role}"), f"{self._at}attention.{role}", role, True) for role in roles]
        attention = self.site.module(self.layer)
        shape = {"heads": attention.heads, "head_dim": attention.head_dim, "head": self.head}
        return self._step("query_key_value", f"{self._at}attention.query", *vectors, **shape)

    def attention(self) -> WalkStep:
        scores, weights = self._row("attention.scores"), self._row("attention.weights")
        if len(scores) != len(self.site.keys):
            raise InputError(say("explain.looks_at_memory", family=self.site.pipe.model.family.title))
        visible = _visible(self.site, self.layer, self.position, len(scores))
        masked = [score if seen else None for score, seen in zip(scores, visible, strict=True)]
        key = "attention" if all(visible) else "masked_attention"
        step = self._step(key, f"{self._at}attention.weights", scale=self.site.module(self.layer).scale)
        columns = [Column(say("walk.score"), scores), Column(say("walk.masked"), masked)]  # type: ignore[arg-type]
        return replace(step, columns=[*columns, Column(say("walk.weight"), weights, True)])  # type: ignore[arg-type]

    def _row(self, tensor: str) -> list[float]:
        numbers: list[float] = self.seen[f"{self._at}{tensor}"][0, self.head, self.position].float().tolist()
        return numbers

    def weighted_sum(self) -> Iterator[WalkStep]:
        attention, name = self.site.module(self.layer), f"{self._at}attention."
        of_head = self._vector(say("walk.head", n=self.head), f"{name}heads", "value", True)
        yield self._step("weighted_sum", f"{name}heads", of_head)
        output = self._vector(say("walk.attention_output"), f"{name}output")
        yield self._step("merge", f"{name}output", output, heads=attention.heads, head_dim=attention.head_dim)

    def cross_attention(self) -> Iterator[WalkStep]:
        name = f"{self._at}cross_attention."
        if self.site.side != "decoder" or f"{name}weights" not in self.seen:
            return
        source = [unit.text for unit in self.site.reading.units]
        query = self._vector(say("walk.query"), f"{name}query", "query", True)
        step = self._step("look_at_source", f"{name}weights", query, count=len(source))
        scores, weights = self._row("cross_attention.scores"), self._row("cross_attention.weights")
        columns = [Column(say("walk.score"), scores), Column(say("walk.weight"), weights, True)]  # type: ignore[arg-type]
        yield replace(step, columns=columns, tokens=source)
        of_head = self._vector(say("walk.head", n=self.head), f"{name}heads", "value", True)
        yield self._step("take_from_source", f"{name}output", of_head, self._vector(say("walk.read"), f"{name}output"))

    def feed_forward(self) -> WalkStep:
        hidden = self._vector(say("walk.widened"), f"{self._at}feedforward.hidden")
        output = self._vector(say("walk.feed_forward_output"), f"{self._at}feedforward.output")
        after = self._vector(say("walk.layer_output", n=self.layer), f"{self._at}output")
        return self._step("feed_forward", f"{self._at}feedforward.output", hidden, output, after, width=hidden.length)

    def layers_above(self) -> Iterator[WalkStep]:
        last = len(self.site.stack.layers) - 1
        if above := last - self.layer:
            name = f"{self.site.prefix}layers.{last}.output"
            key = "one_layer_above" if above == 1 else "layers_above"
            yield self._step(key, name, self._vector(say("walk.last_output"), name), count=above)

    def final_norm(self) -> Iterator[WalkStep]:
        name = f"{self.site.prefix}final.norm"
        if name in self.seen:
            yield self._step("final_norm", name, self._vector(say("walk.normalised"), name))

    def answer(self, top_k: int) -> Iterator[WalkStep]:
        if "logits" not in self.seen:
            return
        logits = self.seen["logits"][0, self.position]
        best = logits.float().softmax(-1).topk(min(top_k, len(logits)))
        words = display_texts(self.site.pipe.tokenizer.target, best.indices.tolist())
        key = "next_token" if self.site.pipe.model.can_generate else "word_scores"
        step = self._step(key, "logits", words=len(logits))
        yield replace(step, guesses=list(zip(words, best.values.tolist(), strict=True)))


def _visible(site: AttentionSite, layer: int, position: int, length: int) -> list[bool]:
    """Which tokens the mask lets it look at."""
    window, causal = site.stack.blocks[layer].window, site.stack.causal
    near = [window is None or abs(position - j) < window for j in range(length)]
    return [close and (not causal or j <= position) for j, close in enumerate(near)]


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, k: int, side: str, target: str | None, **values: Any) -> Walk:
    return walk(pipe, text, top_k=k, side=None if side == "auto" else side, target=target, **values)


QUESTION = Question(
    name="walk", kind="walk", group="answer", answer=_answer,
    checks=(reads_one_input, has_attention, no_segment_memory),
    params=(
        LAYER, HEAD, replace(POSITION, key="walk.position"),
        Setting(name="numbers", key="walk.numbers", type=int, default=6, least=1, most=4096), count("walk.k", 10),
        replace(STACK, key="walk.side"), TARGET,
    ),
)  # fmt: skip
