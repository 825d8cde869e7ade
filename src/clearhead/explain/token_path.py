"""One token's way through a stack, stop by stop: what walks through attention and through recurrent layers share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from clearhead.explain.attention_site import AttentionSite
from clearhead.messages import Message, say
from clearhead.text.units import display_texts

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


@dataclass(frozen=True)
class TokenPath:
    """One forward pass, seen from one token, one layer and one head: each method is a stop."""

    site: AttentionSite
    seen: Any  # tensors by their tap
    layer: int
    head: int
    position: int
    numbers: int

    @classmethod
    def taps(cls, site: AttentionSite, layer: int) -> list[str]:
        """The tensors that the stops show."""
        stack, model, prefix = site.stack, site.pipe.model, site.prefix
        names = [f"{prefix}embed.{name}" for name in stack.embed.taps if name != "languages"]
        names += [f"{prefix}layers.{layer}.input|output", f"{prefix}layers.{len(stack.layers) - 1}.output"]
        if stack.final_norm is not None:
            names.append(f"{prefix}final.norm")
        if model.language_head is not None and site.side != "encoder":
            names.append("logits")
        return names

    def steps(self, top_k: int) -> Iterator[WalkStep]:
        """All stops, in their order."""
        yield self.embedding()
        yield from self.layers_below()
        yield from self.inside()
        yield from self.layers_above()
        yield from self.final_norm()
        yield from self.answer(top_k)

    def inside(self) -> Iterator[WalkStep]:
        """The stops in the layer that is looked into."""
        raise NotImplementedError

    @property
    def _at(self) -> str:
        return f"{self.site.prefix}layers.{self.layer}."

    def _shown(self, label: Message, row: Tensor, role: Role = "plain") -> Vector:
        return Vector(label, [round(v, 4) for v in row[: self.numbers].float().tolist()], row.shape[-1], role)

    def _vector(self, label: Message, name: str, role: Role = "plain") -> Vector:
        # positions are the same for all rows of a batch, and may have only one
        return self._shown(label, self.seen[name][0, self.position], role)

    def _step(self, key: str, tap: str, *vectors: Vector, **values: Any) -> WalkStep:
        return WalkStep(say(f"walk.{key}.title"), say(f"walk.{key}.explanation", **values), tap, list(vectors))

    def embedding(self, key: str = "embedding") -> WalkStep:
        embed = f"{self.site.prefix}embed."
        parts = [part for part in ("tokens", "positions", "segments") if embed + part in self.seen]
        vectors = [self._vector(say(f"walk.embed_{part}"), embed + part) for part in parts]
        output = self._vector(say("walk.enters"), f"{embed}output")
        unit = self.site.queries[self.position]
        return self._step(key, f"{embed}output", *vectors, output, token=getattr(unit, "id", unit.text),
                          text=unit.text.strip(), width=output.length)  # fmt: skip

    def layers_below(self) -> Iterator[WalkStep]:
        if self.layer > 0:
            name = f"{self._at}input"
            key = "one_layer_below" if self.layer == 1 else "layers_below"
            yield self._step(key, name, self._vector(say("walk.layer_input", n=self.layer), name), count=self.layer)

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
