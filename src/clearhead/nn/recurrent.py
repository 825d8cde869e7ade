"""Recurrent layers: drop-ins for `torch.nn.RNN`, `LSTM` and `GRU` with glass walls.

Each class is torch's own: constructor, state dict, return values, packed sequences. When nobody looks, torch's fused
kernels run. When a trace asks for an inner tensor, the same steps are taken one by one, and every gate, cell and state
is announced: `layers.N.input_gate`, `layers.N.cell`, `layers.N.hidden` …, and for the direction that reads backwards
`layers.N.reverse.hidden` …; before them what goes into all gates, side by side: the word's part `from_input` and the
last state's `from_state`. What is announced is (batch, time, width), batch first whatever `batch_first` says, an input
without a batch as a batch of one; where a text has ended, its rows are zero.

A replacement acts in time: what is put in the place of a state at one step is what the next step reads. It is asked
anew at every step, with the steps that are still to come left zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from clearhead.nn.fused_recurrence import Alike, States, run_fused
from clearhead.nn.linear import is_fast
from clearhead.nn.recurrent_weights import LayerLinears, LayerWeights, MakeLinear, Products
from clearhead.nn.tracing import is_replaced, is_watched, replaced, tap

Announce = Callable[[str, Tensor], Tensor]  # name, tensor -> the tensor, or what is put in its place


_CELLS: dict[str, Any] = {
    "LSTM": torch.lstm_cell,
    "GRU": torch.gru_cell,
    "RNN_TANH": torch.rnn_tanh_cell,
    "RNN_RELU": torch.rnn_relu_cell,
}


class LayerTaps(nn.Module):
    """The names under which one layer announces its tensors; it holds no weights."""

    def __init__(self, taps: Sequence[str], bidirectional: bool = False) -> None:
        super().__init__()
        self.taps = tuple(taps)
        if bidirectional:
            self.reverse = LayerTaps(taps)


class RecurrentBase(nn.RNNBase):
    """What RNN, LSTM and GRU share: a subclass says how one step goes."""

    taps_of_a_layer: ClassVar[tuple[str, ...]]
    layers: nn.ModuleList
    linears: nn.ModuleList | None  # what it multiplies by, where that is no longer its own weights

    def _add_taps(self) -> None:
        taps = self.taps_of_a_layer
        self.layers = nn.ModuleList(LayerTaps(taps, self.bidirectional) for _ in range(self.num_layers))
        self.linears = None

    def forward(self, input: Any, hx: Any = None) -> Any:
        """As torch.nn's: (output, the last states)."""
        return self._announced(input, hx) if self.is_seen() else super().forward(input, hx)

    def read(self, x: Tensor, states: States | None = None, real: Tensor | None = None) -> tuple[Tensor, States]:
        """As a stack calls it: one layer, batch first; states always a tuple; padding anywhere.

        x        (batch, time, width)
        states   (layers · directions, batch, width) each; None: zeros
        real     (batch, time): where a text is. Padding leaves the states as they were, and gives zeros
        """
        if self.is_seen() or self.linears is not None:
            return self._step_by_step(x, self.zeros(x) if states is None else states, real)
        if real is None and self.is_quick_step(x):
            first = self.zeros(x) if states is None else states
            new = self.one_step(x[:, 0], tuple(state[0] for state in first), None)
            return new[0][:, None], tuple(state[None] for state in new)
        return run_fused([self], x, states, real)

    def is_quick_step(self, x: Tensor) -> bool:
        """Whether this is one step of one layer that the products of few rows take faster than torch's kernel: on a CPU
        that one puts the weights in another order at every call."""
        one = x.shape[1] == 1 and self.num_layers == 1 and not self.bidirectional
        return one and is_fast(x, self._weights_of(0).weight_ih)

    def use_linears(self, make: MakeLinear) -> None:
        """Multiply by linear layers that `make` makes of each weight and bias, and let these go."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        self.linears = nn.ModuleList(LayerLinears(self._weights_of(n), make) for n in range(count))
        for name in list(self._parameters):
            delattr(self, name)

    def zeros(self, x: Tensor) -> States:
        """The states before the first step."""
        return Alike.of(self).zeros(x, self.num_layers)

    def is_seen(self) -> bool:
        """Whether a trace asks for an inner tensor, so that the steps are taken one by one."""
        return any(is_watched(place, *place.taps) for place in self._places())

    def as_one_layer(self) -> Self:
        """Announce under the owner's name, without the number of the only layer: `hidden`, `reverse.hidden`."""
        self.tap_names, self.layers.tap_names = {"layers": ""}, {"0": ""}  # type: ignore[assignment]
        return self

    def _places(self) -> Iterator[LayerTaps]:
        """Where tensors are announced: each layer, then each layer's other direction, in the order of the weights."""
        for layer in self.layers:
            yield layer  # type: ignore[misc]
            if self.bidirectional:
                yield layer.reverse  # type: ignore[misc]

    def step(
        self, projected: Tensor, states: tuple[Tensor, ...], products: Products, taps: Announce
    ) -> tuple[Tensor, ...]:
        """The states after one step: hidden, (batch, width), and an LSTM's cell.

        projected   the input's part of all gates, (batch, gates · width)
        """
        raise NotImplementedError

    def one_step(self, x: Tensor, states: States, taps: StepTaps | None) -> States:
        """One step of the only layer, forwards: x (batch, width), states (batch, width) each.

        taps   announces what happens inside; None: nobody looks, and one kernel does it
        """
        products = self._products_of(0)
        plain = products if isinstance(products, LayerWeights) and products.weight_hr is None else None
        if taps is None and plain is not None and not is_fast(x, plain.weight_ih):
            new = _CELLS[self.mode](x, states if len(states) > 1 else states[0], *plain[:4])
            return new if isinstance(new, tuple) else (new,)
        return self.step(products.of_input(x), states, products, taps or _unannounced)

    # ---- the explicit path

    def _announced(self, given: Any, hx: Any) -> Any:
        """torch.nn's arguments and return values around the steps."""
        packed, real, lengths = isinstance(given, PackedSequence), None, None
        if packed:
            x, lengths = pad_packed_sequence(given, batch_first=True)  # in the order of the caller
            real = (torch.arange(x.shape[1]) < lengths[:, None]).to(x.device)
        else:
            x = given[None] if given.ndim == 2 else given if self.batch_first else given.transpose(0, 1)
        alone = not packed and given.ndim == 2
        states = None if hx is None else hx if isinstance(hx, tuple) else (hx,)
        if alone and states is not None:
            states = tuple(state[:, None] for state in states)
        first = self.zeros(x) if states is None else states
        rows = given.data if packed else x if self.batch_first else x.transpose(0, 1)
        hidden: Any = first if len(first) > 1 else first[0]
        self.check_forward_args(rows, hidden, given.batch_sizes if packed else None)  # torch's own
        output, last = self._step_by_step(x, first, real)
        if alone:
            last = tuple(state[:, 0] for state in last)
        return self._output(output, given, lengths, alone), last[0] if len(last) == 1 else last

    def _step_by_step(self, x: Tensor, first: States, real: Tensor | None) -> tuple[Tensor, States]:
        """The last layer's states at every step, and the last states of all, (layers · directions, batch, width)."""
        finals: list[States] = []
        directions = 2 if self.bidirectional else 1
        places = list(self._places())
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                n = layer * directions + direction
                states = tuple(state[n] for state in first)
                output, last = self._direction(x, states, self._products_of(n), places[n], direction == 1, real)
                outputs.append(output)
                finals.append(last)
            x = torch.cat(outputs, -1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout)
        return x, tuple(
            torch.stack(parts) for parts in zip(*finals, strict=True)
        )  # (layers · directions, batch, width)

    def _output(self, x: Tensor, given: Any, lengths: Tensor | None, alone: bool) -> Any:
        if lengths is not None:
            enforce = given.sorted_indices is None
            return pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=enforce)
        return x[0] if alone else x if self.batch_first else x.transpose(0, 1)

    def _products_of(self, n: int) -> Products:
        return self._weights_of(n) if self.linears is None else self.linears[n]  # type: ignore[return-value]

    def _weights_of(self, n: int) -> LayerWeights:
        layer, reverse = divmod(n, 2) if self.bidirectional else (n, 0)
        end = f"l{layer}" + ("_reverse" if reverse else "")
        return LayerWeights(*(getattr(self, f"{name}_{end}", None) for name in LayerWeights._fields))  # type: ignore[arg-type]

    def _direction(
        self,
        x: Tensor,  # (batch, time, width)
        states: States,
        products: Products,
        place: LayerTaps,
        backwards: bool,
        real: Tensor | None,  # (batch, time)
    ) -> tuple[Tensor, States]:
        """The hidden states of every step, and the last states."""
        time = x.shape[1]
        projected = products.of_input(x)  # (batch, time, gates · width)
        taps = StepTaps(place, time)
        for t in reversed(range(time)) if backwards else range(time):
            now = None if real is None else real[:, t, None]
            taps.at(t, now)
            new = self.step(projected[:, t], states, products, taps)
            if now is not None:  # a text that has ended, or not begun, keeps its state
                new = tuple(torch.where(now, after, before) for after, before in zip(new, states, strict=True))
            states = new
        taps.announce()
        return taps.whole["hidden"], states


class StepTaps:
    """Collects what the steps of one module announce, and announces it when the last one is done."""

    def __init__(self, place: nn.Module, time: int) -> None:
        self.place = place
        self.whole: dict[str, Tensor] = {}
        names: Any = place.taps
        self._steps: dict[str, list[Tensor | None]] = {name: [None] * time for name in names}
        self._now = 0
        self._real: Tensor | None = None

    def at(self, t: int, real: Tensor | None) -> None:
        """The step that is taken now; real: (batch, 1), which texts have it."""
        self._now, self._real = t, real

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Announce `value`, (batch, width), as this step's `name`; returns it, or what is put in its place."""
        if is_replaced(self.place, name):
            row = self._stacked(name, value)
            row[:, self._now] = value
            value = replaced(self.place, name, row)[:, self._now]
        self._steps[name][self._now] = value if self._real is None else value * self._real
        return value

    def _stacked(self, name: str, like: Tensor) -> Tensor:
        """(batch, time, width), zero where a step is still to come."""
        zero = torch.zeros_like(like)
        return torch.stack([zero if step is None else step for step in self._steps[name]], 1)

    def announce(self) -> None:
        """Announce everything that was gathered; `whole` then has it, (batch, time, width) each."""
        for name, steps in self._steps.items():
            like = next(step for step in steps if step is not None)
            self.whole[name] = tap(self.place, name, self._stacked(name, like))  # a replacement says the same again


def _unannounced(name: str, value: Tensor) -> Tensor:
    return value


class RNN(RecurrentBase, nn.RNN):
    """`torch.nn.RNN`: h = tanh(W x + U h + b), or relu."""

    taps_of_a_layer = ("from_input", "from_state", "hidden")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.RNN.__init__(self, *args, **kwargs)
        self._add_taps()

    def step(
        self, projected: Tensor, states: tuple[Tensor, ...], products: Products, taps: Announce
    ) -> tuple[Tensor, ...]:
        from_state = taps("from_state", products.of_state(states[0]))
        total = taps("from_input", projected) + from_state
        return (taps("hidden", total.tanh() if self.nonlinearity == "tanh" else total.relu()),)


class LSTM(RecurrentBase, nn.LSTM):
    """`torch.nn.LSTM` (Hochreiter and Schmidhuber 1997), with projection (`proj_size`) where asked.

    cell = forget_gate · cell + input_gate · candidate;  hidden = output_gate · tanh(cell)
    """

    taps_of_a_layer = (
        "from_input", "from_state", "input_gate", "forget_gate", "candidate", "output_gate", "cell", "hidden",
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.LSTM.__init__(self, *args, **kwargs)
        self._add_taps()

    def step(
        self, projected: Tensor, states: tuple[Tensor, ...], products: Products, taps: Announce
    ) -> tuple[Tensor, ...]:
        hidden, cell = states
        from_state = taps("from_state", products.of_state(hidden))
        i, f, g, o = (taps("from_input", projected) + from_state).chunk(4, -1)
        input_gate, forget_gate = taps("input_gate", i.sigmoid()), taps("forget_gate", f.sigmoid())
        candidate, output_gate = taps("candidate", g.tanh()), taps("output_gate", o.sigmoid())
        cell = taps("cell", forget_gate * cell + input_gate * candidate)
        return taps("hidden", products.projected(output_gate * cell.tanh())), cell


class GRU(RecurrentBase, nn.GRU):
    """`torch.nn.GRU` (Cho et al. 2014): hidden = (1 − update_gate) · candidate + update_gate · hidden.

    The reset gate acts on what the candidate takes from the last state, its bias included.
    """

    taps_of_a_layer = ("from_input", "from_state", "reset_gate", "update_gate", "candidate", "hidden")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.GRU.__init__(self, *args, **kwargs)
        self._add_taps()

    def step(
        self, projected: Tensor, states: tuple[Tensor, ...], products: Products, taps: Announce
    ) -> tuple[Tensor, ...]:
        (hidden,) = states
        from_input = taps("from_input", projected).chunk(3, -1)
        from_state = taps("from_state", products.of_state(hidden)).chunk(3, -1)
        reset = taps("reset_gate", (from_input[0] + from_state[0]).sigmoid())
        update = taps("update_gate", (from_input[1] + from_state[1]).sigmoid())
        candidate = taps("candidate", (from_input[2] + reset * from_state[2]).tanh())
        return (taps("hidden", (1 - update) * candidate + update * hidden),)
