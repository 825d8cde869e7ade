"""One token's way through a layer with attention: query, key, value → scores → weights → sum → feed-forward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from clearhead.errors import InputError
from clearhead.explain.attention_site import AttentionSite
from clearhead.explain.token_path import Column, Role, TokenPath, Vector, WalkStep
from clearhead.messages import Message, say


@dataclass(frozen=True)
class AttentionPath(TokenPath):
    """The stops in a Transformer's layer."""

    @classmethod
    def taps(cls, site: AttentionSite, layer: int) -> list[str]:
        at = f"{site.prefix}layers.{layer}."
        names = [*super().taps(site, layer), f"{at}attention.*", f"{at}feedforward.*"]
        return [*names, f"{at}cross_attention.*"] if site.side == "decoder" else names

    def inside(self) -> Iterator[WalkStep]:
        yield self.query_key_value()
        yield self.attention()
        yield from self.weighted_sum()
        yield from self.cross_attention()
        yield self.feed_forward()

    def _of_head(self, label: Message, name: str, role: Role) -> Vector:
        return self._shown(label, self.seen[name][0, self.head, self.position], role)

    def query_key_value(self) -> WalkStep:
        roles: tuple[Role, ...] = ("query", "key", "value")
        vectors = [self._of_head(say(f"walk.{role}"), f"{self._at}attention.{role}", role) for role in roles]
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
        of_head = self._of_head(say("walk.head", n=self.head), f"{name}heads", "value")
        yield self._step("weighted_sum", f"{name}heads", of_head)
        output = self._vector(say("walk.attention_output"), f"{name}output")
        yield self._step("merge", f"{name}output", output, heads=attention.heads, head_dim=attention.head_dim)

    def cross_attention(self) -> Iterator[WalkStep]:
        name = f"{self._at}cross_attention."
        if self.site.side != "decoder" or f"{name}weights" not in self.seen:
            return
        source = [unit.text for unit in self.site.reading.units]
        query = self._of_head(say("walk.query"), f"{name}query", "query")
        step = self._step("look_at_source", f"{name}weights", query, count=len(source))
        scores, weights = self._row("cross_attention.scores"), self._row("cross_attention.weights")
        columns = [Column(say("walk.score"), scores), Column(say("walk.weight"), weights, True)]  # type: ignore[arg-type]
        yield replace(step, columns=columns, tokens=source)
        of_head = self._of_head(say("walk.head", n=self.head), f"{name}heads", "value")
        yield self._step("take_from_source", f"{name}output", of_head, self._vector(say("walk.read"), f"{name}output"))

    def feed_forward(self) -> WalkStep:
        hidden = self._vector(say("walk.widened"), f"{self._at}feedforward.hidden")
        output = self._vector(say("walk.feed_forward_output"), f"{self._at}feedforward.output")
        after = self._vector(say("walk.layer_output", n=self.layer), f"{self._at}output")
        return self._step("feed_forward", f"{self._at}feedforward.output", hidden, output, after, width=hidden.length)


def _visible(site: AttentionSite, layer: int, position: int, length: int) -> list[bool]:
    """Which tokens the mask lets it look at."""
    window, causal = site.stack.blocks[layer].window, site.stack.causal
    near = [window is None or abs(position - j) < window for j in range(length)]
    return [close and (not causal or j <= position) for j, close in enumerate(near)]
