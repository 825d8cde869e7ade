"""A recurrent decoder: it starts from what an encoder has read, and may look at all of it at every step.

Where a step needs nothing of the last one but its state, torch's kernel takes all steps of a text in one call. Where
its input has something of the last step in it (the context that additive attention found with the state before it, or
the last output, fed back), steps go one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.nn.embedding import Embedder
from clearhead.nn.fused_recurrence import Alike, States
from clearhead.nn.linear import Linear
from clearhead.nn.recurrent import StepTaps
from clearhead.nn.recurrent_attention import AttendedStates, RecurrentAttention
from clearhead.nn.recurrent_stack import RecurrentLayer, RecurrentStack, real_positions
from clearhead.nn.stack import narrowed, shape_of
from clearhead.nn.state import TensorState
from clearhead.nn.tracing import is_watched, tap


class Bridge(nn.Module):
    """From an encoder's last states to a decoder's first: as they are (no matrices), or through a matrix each.

    A layer starts from the encoder's layer beside it, and from the last one where there are no more. A hidden state
    goes through tanh, since it lies between -1 and 1; a cell does not.
    """

    def __init__(self, encoder: Sequence[RecurrentLayer], decoder: Sequence[RecurrentLayer], *, dense: bool) -> None:
        super().__init__()
        kinds = [Alike.of(layer.rnn) for layer in encoder]
        wanted = [Alike.of(layer.rnn) for layer in decoder]
        if not dense and kinds != wanted:
            raise ConfigError(
                "The decoder cannot take the encoder's states as they are: layers, directions and widths differ. "
                'Put a matrix between them: bridge "dense".'
            )
        self.sources = [min(n, len(kinds) - 1) for n in range(len(wanted))]
        self.parts = nn.ModuleList()  # by layer: of the hidden state, of an LSTM's cell
        for n, kind in enumerate(wanted if dense else []):
            given = kinds[self.sources[n]]
            pairs = zip(given.state_widths, kind.state_widths, strict=True)
            self.parts.append(nn.ModuleList(Linear(given.directions * a, b) for a, b in pairs))

    def forward(self, states: Sequence[Tensor]) -> list[Tensor]:
        """The states of the encoder's layers, flat, (directions, batch, width) each -> the decoder's, alike."""
        if not len(self.parts):
            return list(states)
        matrices: list[list[Linear]] = [list(part) for part in self.parts]  # type: ignore[call-overload]
        count, first = len(matrices[0]), []
        for n, own in zip(self.sources, matrices, strict=True):
            for k, matrix in enumerate(own):
                given = states[n * count + k]  # (directions, batch, width)
                made = matrix(given.transpose(0, 1).flatten(1))[None]
                first.append(made.tanh() if k == 0 else made)
        return first


class Readout(nn.Module):
    """What the head reads of a step: tanh(W [context; state]), or of the state alone where there is no context."""

    taps = ("output",)

    def __init__(self, width: int, context_width: int, out_width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dense = Linear(context_width + width, out_width, bias=False)
        self.dropout = dropout

    def forward(self, state: Tensor, context: Tensor | None) -> Tensor:
        both = state if context is None else torch.cat([context, state], -1)
        return F.dropout(self.dense(both).tanh(), self.dropout, self.training)


class DecoderState(TensorState):
    """The states of every layer, then the output that is fed back, where one is; (1, rows, width) each.

    source   what attention looks at: of each text, whatever copies of it a search keeps
    """

    def __init__(
        self, tensors: Sequence[Tensor] | None = None, length: int = 0, source: AttendedStates | None = None
    ) -> None:
        super().__init__(tensors, length)
        self.source = source

    def copy(self) -> Self:
        return type(self)(self.tensors, self.length, self.source)


class RecurrentDecoder(RecurrentStack):
    """
    bridge          makes its first states
    attention       None: all it knows of the source is its first state
    readout         what the head reads; None: the last layer's output
    input_feeding   the last step's readout is part of the next step's input, so that it knows where it has looked
    feed_context    without attention: the encoder's last state is part of every step's input and readout
    """

    def __init__(
        self,
        embed: Embedder,
        layers: Iterable[RecurrentLayer],
        bridge: Bridge,
        *,
        attention: RecurrentAttention | None = None,
        readout: Readout | None = None,
        input_feeding: bool = False,
        feed_context: bool = False,
    ) -> None:
        super().__init__(embed, layers, causal=True)
        self.bridge, self.attention, self.readout = bridge, attention, readout
        self.input_feeding, self.feed_context = input_feeding, feed_context

    @property
    def looks_before(self) -> bool:
        """Whether attention scores with the state before the step, so that the step can read what it found."""
        return self.attention is not None and self.attention.score == "additive"

    @property
    def goes_step_by_step(self) -> bool:
        """Whether a step reads what the last one made, beside its state."""
        return self.looks_before or self.input_feeding

    @property
    def last_tap(self) -> str:
        return super().last_tap if self.readout is None else "readout.output"

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,  # (batch, target)
        *,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        memory: Tensor | None = None,  # the encoder's output, (texts, source, width)
        memory_mask: Tensor | None = None,
        memory_states: Sequence[Tensor] | None = None,  # the encoder's last states, layer by layer
        state: DecoderState | None = None,
    ) -> Tensor:
        """What the head reads, (batch, target, width); `state` is brought up to date."""
        batch, time, device = shape_of(input_ids, inputs_embeds)
        real = real_positions(attention_mask, batch, time)
        real = None if real is None or bool(real.all()) else real
        x = narrowed(self.embed(input_ids, torch.zeros(1, 1, dtype=torch.long, device=device), None, inputs_embeds))
        if state is not None and state.tensors is not None:
            before, source = list(state.tensors), state.source
        elif memory is None or memory_states is None:
            raise InputError("A recurrent decoder starts from its encoder's last states: give what `encode` returns.")
        else:
            before, source = self._first(memory_states, x), self._source(memory, memory_mask, memory_states)
        if self.goes_step_by_step:
            out, after = self._step_by_step(x, source, before, real)
        else:
            out, after = self._all_at_once(x, source, before, real)
        if state is not None:
            state.replace(after, time)
            state.source = source
        return out

    def _first(self, memory_states: Sequence[Tensor], x: Tensor) -> list[Tensor]:
        first: list[Tensor] = self.bridge(memory_states)
        if self.input_feeding:
            assert self.readout is not None
            first.append(x.new_zeros(1, len(x), self.readout.dense.out_features))
        return first

    def _source(self, memory: Tensor, mask: Tensor | None, memory_states: Sequence[Tensor]) -> AttendedStates | None:
        """What attention looks at; where a context is fed without it, that one vector."""
        if self.attention is not None:
            real = real_positions(mask, *memory.shape[:2])
            return self.attention.source(memory, None if real is None or bool(real.all()) else real)
        if not self.feed_context:
            return None
        last = memory_states[-len(Alike.of(self.recurrent_layers[0].rnn).state_widths)]  # (directions, texts, width)
        return AttendedStates(last.transpose(0, 1).flatten(1)[:, None], None, None)

    def _fed_context(self, source: AttendedStates | None, rows: int) -> Tensor | None:
        """(rows, width), where one vector is all there is to look at."""
        if source is None or not self.feed_context:
            return None
        return source.memory[:, 0].repeat_interleave(rows // len(source.memory), 0)

    def _all_at_once(
        self, x: Tensor, source: AttendedStates | None, before: list[Tensor], real: Tensor | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        context = self._fed_context(source, len(x))
        if context is not None:
            context = context[:, None].expand(-1, x.shape[1], -1)
            x = torch.cat([x, context], -1)
        x, after = self.read(x, before, real)
        if self.attention is not None:
            assert source is not None
            attention = self.attention
            context = attention(x, source, lambda name, value: tap(attention, name, value))
        if self.readout is not None:
            x = tap(self.readout, "output", self.readout(x, context))
            x = x if real is None else x * real[..., None]
        return x, after

    def _step_by_step(
        self, x: Tensor, source: AttendedStates | None, before: list[Tensor], real: Tensor | None
    ) -> tuple[Tensor, Sequence[Tensor]]:
        count = len(Alike.of(self.recurrent_layers[0].rnn).state_widths)
        states = [tuple(state[0] for state in before[n : n + count]) for n in range(0, len(self.layers) * count, count)]
        fed = before[-1][0] if self.input_feeding else None
        context = self._fed_context(source, len(x))
        watch, outputs = _Watch(self, x.shape[1]), []
        for t, now in enumerate(x.unbind(1)):
            there = None if real is None else real[:, t, None]
            watch.at(t, there)
            if self.looks_before:
                context = self._look(states[-1][0], source, watch)
            read_before = context if self.looks_before or self.feed_context else None
            y = torch.cat([part for part in (now, read_before, fed) if part is not None], -1)
            y, new = self._through_layers(y, states, watch)
            if self.attention is not None and not self.looks_before:
                context = self._look(y, source, watch)
            if self.readout is not None:
                y = watch.readout("output", self.readout(y, context))
            if there is not None:  # padding leaves everything as it was, and gives zeros
                kept = zip(new, states, strict=True)
                new = [tuple(torch.where(there, a, b) for a, b in zip(*pair, strict=True)) for pair in kept]
                fed = None if fed is None else torch.where(there, y, fed)
                y = y * there
            else:
                fed = None if fed is None else y
            states = new
            outputs.append(y)
        out = torch.stack(outputs, 1)
        out = watch.announce(out)
        after = [part[None] for layer in states for part in layer]
        return out, after if fed is None else [*after, fed[None]]

    def _look(self, state: Tensor, source: AttendedStates | None, watch: _Watch) -> Tensor:
        """The context that one state finds, (rows, width)."""
        assert self.attention is not None and source is not None
        context: Tensor = self.attention(state[:, None], source, watch.attention_step)[:, 0]
        return context

    def _through_layers(self, y: Tensor, states: list[States], watch: _Watch) -> tuple[Tensor, list[States]]:
        new = []
        for n, layer in enumerate(self.recurrent_layers):
            y = watch.layers[n]("input", y)
            new.append(layer.rnn.one_step(y, states[n], watch.rnns[n]))
            y = watch.layers[n]("output", layer.drop(new[-1][0]))
        return y, new


class _Watch:
    """Who looks at what while a decoder takes its steps: for each part, what announces its tensors."""

    def __init__(self, decoder: RecurrentDecoder, time: int) -> None:
        def steps(place: nn.Module | None) -> StepTaps | None:
            names: tuple[str, ...] = () if place is None else place.taps  # type: ignore[assignment]
            return StepTaps(place, time) if place is not None and is_watched(place, *names) else None

        layers = decoder.recurrent_layers
        self.rnns = [steps(layer.rnn.layers[0]) for layer in layers]
        self._layers = [steps(layer) for layer in layers]
        self._attention, self._readout = steps(decoder.attention), steps(decoder.readout)
        self._all = [one for one in (*self.rnns, *self._layers, self._attention, self._readout) if one is not None]
        self.layers = [one or _unseen for one in self._layers]
        self.readout = self._readout or _unseen

    def at(self, t: int, real: Tensor | None) -> None:
        for one in self._all:
            one.at(t, real)

    def attention_step(self, name: str, value: Tensor) -> Tensor:
        return value if self._attention is None else self._attention(name, value[:, 0])[:, None]

    def announce(self, out: Tensor) -> Tensor:
        """After the last step; returns the decoder's output, as it was announced."""
        for one in self._all:
            one.announce()
        return out if self._readout is None else self._readout.whole["output"]


def _unseen(name: str, value: Tensor) -> Tensor:
    return value
