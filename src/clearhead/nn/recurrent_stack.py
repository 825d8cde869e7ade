"""A stack of recurrent layers: an embedder, then RNNs, LSTMs or GRUs one above the other, of any widths.

Padding, on either side, never changes a state. What one call has read is carried to the next in a `TensorState`: for
each layer its hidden state and an LSTM's cell, (directions, batch, width) each. When nobody looks between the layers,
and they are alike, torch's kernel runs all of them in one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.nn.embedding import Embedder
from clearhead.nn.fused_recurrence import Alike, States, matrices_of, run_fused
from clearhead.nn.recurrent import RecurrentBase
from clearhead.nn.stack import Stack, narrowed, shape_of
from clearhead.nn.state import TensorState
from clearhead.nn.tracing import is_watched, tap


class RecurrentLayer(nn.Module):
    """One recurrent layer in a stack, in one direction or both: it announces its input, its output, and all `rnn` does.

    rnn       an RNN, LSTM or GRU of clearhead.nn with one layer, batch first
    dropout   of what it hands on
    """

    taps: tuple[str, ...] = ("input", "output")
    tap_names = {"rnn": ""}

    def __init__(self, rnn: RecurrentBase, dropout: float = 0.0) -> None:
        super().__init__()
        assert rnn.num_layers == 1 and rnn.batch_first
        self.rnn = rnn.as_one_layer()
        self.dropout = dropout

    @property
    def width(self) -> int:
        """Of its output."""
        return (self.rnn.proj_size or self.rnn.hidden_size) * (2 if self.rnn.bidirectional else 1)

    @property
    def input_size(self) -> int:
        return self.rnn.input_size

    @property
    def gates_and_states(self) -> int:
        """How many numbers one position makes, which training keeps."""
        kind = Alike.of(self.rnn)
        return kind.directions * (matrices_of(self.rnn)[0].shape[0] + sum(kind.state_widths))

    def forward(self, x: Tensor, states: States | None = None, real: Tensor | None = None) -> tuple[Tensor, States]:
        """(batch, time, width), and the states after the last step; the arguments are those of `RecurrentBase.read`."""
        x, last = self.rnn.read(tap(self, "input", x), states, real)
        return tap(self, "output", self.drop(x)), last

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)

    def is_seen(self) -> bool:
        """Whether a trace asks for anything between this layer and its neighbours, or inside it."""
        return is_watched(self, *self.taps) or self.rnn.is_seen()


class RecurrentStack(Stack):
    """Embeds its input and runs the vectors through recurrent layers."""

    def __init__(self, embed: Embedder, layers: Iterable[RecurrentLayer], *, causal: bool) -> None:
        super().__init__(embed, layers, causal=causal)  # type: ignore[arg-type]

    @property
    def recurrent_layers(self) -> list[RecurrentLayer]:
        """The layers, as what they are (torch knows them as modules)."""
        return list(self.layers)  # type: ignore[arg-type]

    @property
    def width(self) -> int:
        """Of what the last layer gives."""
        return self.recurrent_layers[-1].width

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor | None = None,  # (batch, time)
        *,
        attention_mask: Tensor | None = None,  # (batch, earlier and new positions): 0 is padding
        inputs_embeds: Tensor | None = None,
        state: TensorState | None = None,
    ) -> Tensor:
        """The last layer's output, (batch, time, width); `state` is brought up to date."""
        batch, time, device = shape_of(input_ids, inputs_embeds)
        real = real_positions(attention_mask, batch, time)
        if state is not None and state.tensors is not None and not self.causal:
            raise InputError("This model reads in both directions, so it cannot continue from a state.")
        x = self.embed(input_ids, torch.zeros(1, 1, dtype=torch.long, device=device), None, inputs_embeds)
        before = None if state is None or state.tensors is None else state.tensors
        x, after = self.read(x, before, real)
        if state is not None:
            state.replace(after, time)
        return x

    def read(
        self, x: Tensor, states: Sequence[Tensor] | None = None, real: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Vectors through the layers: the last one's output, and the states of all, flat, from the lowest layer up."""
        x = narrowed(x)
        if real is not None and bool(real.all()):  # asked once for all layers
            real = None
        layers, count = self.recurrent_layers, len(Alike.of(self.recurrent_layers[0].rnn).state_widths)
        given = None if states is None else [tuple(states[n : n + count]) for n in range(0, len(states), count)]
        if given is not None and len(given) != len(layers):
            raise InputError(f"The state has {len(given)} layers; this model has {len(layers)}.")
        if self._is_one_call(x):
            return self._in_one_call(x, given, real)
        after: list[Tensor] = []
        for n, layer in enumerate(layers):
            x, last = self.through(layer, x, None if given is None else given[n], real)
            after += last
        return x, tuple(after)

    def run(self, x: Tensor, *, attention_mask: Tensor | None = None, **options: Any) -> Tensor:
        """Vectors through the layers, from nothing."""
        return self.read(x, None, real_positions(attention_mask, *x.shape[:2]))[0]

    # ---- all layers in one call of torch's kernel

    def _is_one_call(self, x: Tensor) -> bool:
        """Where layers are alike and nobody stands between them. Dropout there is drawn by F.dropout, whose draws can
        be repeated, so in training it keeps them apart."""
        layers = self.recurrent_layers
        if len(layers) == 1 or torch.compiler.is_compiling() or any(layer.is_seen() for layer in layers):
            return False
        if any(layer.rnn.linears is not None or layer.rnn.is_quick_step(x) for layer in layers):
            return False
        if self.training and (self.gradient_checkpointing or any(layer.dropout for layer in layers[:-1])):
            return False
        return all(type(layer) is RecurrentLayer and Alike.of(layer.rnn) == Alike.of(layers[0].rnn) for layer in layers)

    def _in_one_call(
        self, x: Tensor, given: list[States] | None, real: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        rnns = [layer.rnn for layer in self.recurrent_layers]
        states = None if given is None else tuple(torch.cat(parts) for parts in zip(*given, strict=True))
        x, last = run_fused(rnns, x, states, real)
        by_layer = zip(*(state.chunk(len(rnns)) for state in last), strict=True)
        return self.recurrent_layers[-1].drop(x), tuple(state for layer in by_layer for state in layer)


def real_positions(attention_mask: Tensor | None, batch: int, time: int) -> Tensor | None:
    """(batch, time): which of the new positions are text; None: all of them."""
    if attention_mask is None:
        return None
    if not isinstance(attention_mask, Tensor) or attention_mask.ndim != 2:
        shape = tuple(attention_mask.shape) if isinstance(attention_mask, Tensor) else type(attention_mask).__name__
        raise InputError(f"A recurrent model reads step by step: attention_mask must be (batch, time), not {shape}.")
    if attention_mask.shape[0] not in (1, batch) or attention_mask.shape[1] < time:
        raise InputError(f"attention_mask must have the shape ({batch}, {time}), not {tuple(attention_mask.shape)}.")
    return (attention_mask[:, -time:] != 0).expand(batch, time)
