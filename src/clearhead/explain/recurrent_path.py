"""One token's way through a recurrent layer: what the word and the last state say to each gate → gates → cell → state.

What goes into a gate comes in two parts, `from_input` (the word's) and `from_state` (the last state's); their sum,
pushed through a sigmoid, is the gate. An LSTM has four of them in the order input, forget, candidate, output; a GRU
three: reset, update, candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from clearhead.explain.attention_site import AttentionSite
from clearhead.explain.recurrence import RecurrentTaps, recurrent_layers
from clearhead.explain.token_path import Column, TokenPath, WalkStep
from clearhead.messages import say
from clearhead.nn.tracing import tap_points

LSTM_ORDER = ("input_gate", "forget_gate", "candidate", "output_gate")
GRU_ORDER = ("reset_gate", "update_gate", "candidate")


@dataclass(frozen=True)
class RecurrentPath(TokenPath):
    """The stops in an RNN's, LSTM's or GRU's layer, of the direction that reads forward."""

    @classmethod
    def taps(cls, site: AttentionSite, layer: int) -> list[str]:
        own = _forward(site, layer)
        known = tap_points(site.pipe.model)
        parts = [own.prefix + part for part in (*own.parts, "from_input", "from_state")]
        if site.side == "decoder":
            ends = ("state", "scores", "weights", "context")
            parts += [f"decoder.attention.{end}" for end in ends] + ["decoder.readout.output"]
        return [*super().taps(site, layer), *(name for name in parts if name in known)]

    def steps(self, top_k: int) -> Iterator[WalkStep]:
        looks_before = getattr(self.site.stack, "looks_before", False)
        yield self.embedding()
        yield from self.attention("look_before") if looks_before else ()
        yield from self.layers_below()
        yield from self.inside()
        yield from self.layers_above()
        yield from self.attention("look_after") if not looks_before else ()
        yield from self.readout()
        yield from self.answer(top_k)

    def embedding(self, key: str = "recurrent_embedding") -> WalkStep:
        return super().embedding(key if self.site.stack.embed.reads_tokens else "character_embedding")

    def inside(self) -> Iterator[WalkStep]:
        yield self.last_state()
        if f"{self._own}forget_gate" in self.seen:
            yield from self.lstm()
        elif f"{self._own}update_gate" in self.seen:
            yield from self.gru()
        else:
            yield self.plain()

    # ---- pieces of tensors

    @cached_property
    def _own(self) -> str:
        """What the names of the layer's gates and states begin with."""
        return _forward(self.site, self.layer).prefix

    def _row(self, part: str) -> Tensor:
        row: Tensor = self.seen[self._own + part][0, self.position]
        return row

    def _before(self, part: str) -> Tensor | None:
        """A state as the step finds it; None before the first word."""
        return None if self.position == 0 else self.seen[self._own + part][0, self.position - 1]

    def _share(self, part: str, gate: str, order: tuple[str, ...]) -> Tensor:
        """What the word, or the state, says to one gate."""
        return self._row(part).chunk(len(order), -1)[order.index(gate)]

    # ---- stops

    def last_state(self) -> WalkStep:
        states = [(part, self._before(part)) for part in ("hidden", "cell") if self._own + part in self.seen]
        vectors = [self._shown(say(f"walk.last_{part}"), row) for part, row in states if row is not None]
        if vectors:
            return self._step("last_state", f"{self._own}hidden", *vectors)
        key = "state_from_encoder" if self.site.side == "decoder" else "no_state_yet"
        return self._step(key, f"{self._own}hidden")

    def gate(self, name: str, order: tuple[str, ...]) -> WalkStep:
        parts = [
            self._shown(say(f"walk.{part}"), self._share(part, name, order)) for part in ("from_input", "from_state")
        ]
        return self._step(name, self._own + name, *parts, self._shown(say(f"explain.part_{name}"), self._row(name)))

    def lstm(self) -> Iterator[WalkStep]:
        for name in LSTM_ORDER:
            yield self.gate(name, LSTM_ORDER)
        written = self._row("input_gate") * self._row("candidate")
        before = self._before("cell")  # what a decoder begins with is not announced
        kept = self._row("cell") - written if before is None else self._row("forget_gate") * before
        yield self._step(
            "new_cell", f"{self._own}cell", self._shown(say("walk.kept"), kept),
            self._shown(say("walk.written"), written), self._shown(say("explain.part_cell"), self._row("cell")),
        )  # fmt: skip
        hidden, cell = self._row("hidden"), self._row("cell")
        key = "new_hidden" if len(hidden) == len(cell) else "projected_hidden"
        yield self._step(
            key, f"{self._own}hidden", self._shown(say("walk.squashed"), cell.tanh()),
            self._shown(say("explain.part_output_gate"), self._row("output_gate")),
            self._shown(say("explain.part_hidden"), hidden), width=len(hidden),
        )  # fmt: skip

    def gru(self) -> Iterator[WalkStep]:
        for name in GRU_ORDER[:2]:
            yield self.gate(name, GRU_ORDER)
        used = self._row("reset_gate") * self._share("from_state", "candidate", GRU_ORDER)
        yield self._step(
            "gru_candidate", f"{self._own}candidate",
            self._shown(say("walk.from_input"), self._share("from_input", "candidate", GRU_ORDER)),
            self._shown(say("walk.from_state_reset"), used),
            self._shown(say("explain.part_candidate"), self._row("candidate")),
        )  # fmt: skip
        taken = (1 - self._row("update_gate")) * self._row("candidate")
        yield self._step(
            "gru_hidden", f"{self._own}hidden", self._shown(say("walk.kept"), self._row("hidden") - taken),
            self._shown(say("walk.written"), taken), self._shown(say("explain.part_hidden"), self._row("hidden")),
        )  # fmt: skip

    def attention(self, key: str) -> Iterator[WalkStep]:
        """A decoder's look at the encoder's states; nothing where it has none."""
        at = "decoder.attention."
        if f"{at}weights" not in self.seen:
            return
        source = [unit.text for unit in self.site.reading.units]
        step = self._step(key, f"{at}weights", self._vector(say("walk.looking_state"), f"{at}state", "query"),
                          count=len(source), score=say(f"walk.score_{self.site.stack.attention.score}"))  # type: ignore[union-attr]  # fmt: skip
        scores, weights = (self.seen[at + name][0, self.position].float().tolist() for name in ("scores", "weights"))
        columns = [Column(say("walk.score"), scores), Column(say("walk.weight"), weights, True)]
        yield replace(step, columns=columns, tokens=source)
        yield self._step("context", f"{at}context", self._vector(say("walk.context"), f"{at}context", "value"))

    def readout(self) -> Iterator[WalkStep]:
        name = "decoder.readout.output"
        if name not in self.seen:
            return
        last = f"{self.site.prefix}layers.{len(self.site.stack.layers) - 1}.output"
        parts = [self._vector(say("walk.last_output"), last)]
        attends = "decoder.attention.context" in self.seen
        if attends:
            parts.insert(0, self._vector(say("walk.context"), "decoder.attention.context", "value"))
        key = "readout" if attends else "readout_of_state"
        yield self._step(key, name, *parts, self._vector(say("walk.read_out"), name))

    def plain(self) -> WalkStep:
        """Without gates; or of a layer that announces none, what it gives."""
        known = [part for part in ("from_input", "from_state") if self._own + part in self.seen]
        vectors = [self._shown(say(f"walk.{part}"), self._row(part)) for part in known]
        states = [part for part in ("cell", "hidden") if self._own + part in self.seen]
        vectors += [self._shown(say(f"explain.part_{part}"), self._row(part)) for part in states]
        return self._step("plain_hidden" if known else "given_state", f"{self._own}hidden", *vectors)


def _forward(site: AttentionSite, layer: int) -> RecurrentTaps:
    """The direction of a layer that reads forward."""
    side = site.prefix.rstrip(".")
    return next(one for one in recurrent_layers(site.pipe.model, side) if one.layer == layer)
