"""torch's fused kernels for recurrent layers: several layers in one call, and texts of several lengths packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from clearhead.nn.torch_internals import flatten_recurrent_weights

States = tuple[Tensor, ...]  # hidden, and an LSTM's cell; (layers · directions, batch, width) each

_KERNELS: dict[str, Any] = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}


class Alike(NamedTuple):
    """What layers must share to run in one call."""

    mode: str  # torch's: "LSTM", "GRU", "RNN_TANH", "RNN_RELU"
    hidden_size: int
    proj_size: int
    bias: bool
    bidirectional: bool

    @classmethod
    def of(cls, rnn: nn.RNNBase) -> Alike:
        return cls(rnn.mode, rnn.hidden_size, rnn.proj_size, rnn.bias, rnn.bidirectional)

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def state_widths(self) -> tuple[int, ...]:
        """Of what is carried from step to step: hidden, and an LSTM's cell."""
        return self.proj_size or self.hidden_size, *((self.hidden_size,) if self.mode == "LSTM" else ())

    def zeros(self, x: Tensor, layers: int) -> States:
        """The states before the first step."""
        return tuple(x.new_zeros(layers * self.directions, len(x), width) for width in self.state_widths)


def weights_of(rnn: nn.RNNBase) -> list[Tensor]:
    """In the order that the kernels take."""
    return [getattr(rnn, name) for name in rnn._flat_weights_names]


def matrices_of(rnn: nn.RNNBase) -> list[Tensor]:
    """What a step multiplies by."""
    return [weight for weight in weights_of(rnn) if weight.ndim == 2]


def run_fused(
    rnns: Sequence[nn.RNNBase],
    x: Tensor,  # (batch, time, width)
    states: States | None,  # None: zeros
    real: Tensor | None,  # (batch, time): where a text is; None: everywhere
) -> tuple[Tensor, States]:
    """Layers that are `Alike`, one above the other, without dropout between them, in one call.

    Padding leaves the states as they were, and gives zeros.
    """
    kind, layers = Alike.of(rnns[0]), sum(rnn.num_layers for rnn in rnns)
    weights = [weight for rnn in rnns for weight in weights_of(rnn)]
    if x.is_cuda:
        flatten_recurrent_weights(rnns[0], weights, layers)
    first = kind.zeros(x, layers) if states is None else states
    options = (kind.bias, layers, 0.0, rnns[0].training, kind.bidirectional)
    kernel = _KERNELS[kind.mode]
    if real is None:
        output, *last = kernel(x, first if len(first) > 1 else first[0], weights, *options, True)
        return output, tuple(last)
    # What is real moves to the front of its row, and nothing else is read.
    lengths = real.sum(1)
    order = (~real).int().argsort(dim=1, stable=True)[..., None]
    rows = x.gather(1, order.expand_as(x))
    packed = pack_padded_sequence(rows, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    begin = tuple(state[:, packed.sorted_indices] for state in first)
    output, *ends = kernel(packed.data, packed.batch_sizes, begin if len(begin) > 1 else begin[0], weights, *options)
    output, _ = pad_packed_sequence(packed._replace(data=output), batch_first=True, total_length=x.shape[1])
    output = torch.zeros_like(output).scatter(1, order.expand_as(output), output) * real[..., None]
    begun = (lengths > 0)[None, :, None]  # a row without a text stays where it was
    ends = [end[:, packed.unsorted_indices] for end in ends]
    return output, tuple(torch.where(begun, new, old) for new, old in zip(ends, first, strict=True))
