"""What one direction of one recurrent layer multiplies by: torch's tensors, or linear layers that stand for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from clearhead.nn.linear import linear

MakeLinear = Callable[[Tensor, Tensor | None], nn.Module]  # (weight, bias) -> what multiplies by them


class Products(Protocol):
    """The products of one step."""

    def of_input(self, x: Tensor) -> Tensor:
        """The input's part of all gates, (…, gates · hidden)."""
        ...

    def of_state(self, hidden: Tensor) -> Tensor:
        """The last state's part of them."""
        ...

    def projected(self, hidden: Tensor) -> Tensor:
        """An LSTM's hidden state, made narrower where it has a projection."""
        ...


class LayerWeights(NamedTuple):
    """By torch's names."""

    weight_ih: Tensor  # (gates · hidden, input)
    weight_hh: Tensor  # (gates · hidden, hidden)
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    weight_hr: Tensor | None  # (projection, hidden)

    def of_input(self, x: Tensor) -> Tensor:
        return linear(x, self.weight_ih, self.bias_ih)

    def of_state(self, hidden: Tensor) -> Tensor:
        return linear(hidden, self.weight_hh, self.bias_hh)

    def projected(self, hidden: Tensor) -> Tensor:
        return hidden if self.weight_hr is None else linear(hidden, self.weight_hr)


class LayerLinears(nn.Module):
    """Linear layers in the weights' place: of few bits, say (`nn/fast/quantized.py`)."""

    def __init__(self, weights: LayerWeights, make: MakeLinear) -> None:
        super().__init__()
        self.ih = make(weights.weight_ih, weights.bias_ih)
        self.hh = make(weights.weight_hh, weights.bias_hh)
        self.hr = None if weights.weight_hr is None else make(weights.weight_hr, None)

    def of_input(self, x: Tensor) -> Tensor:
        product: Tensor = self.ih(x)
        return product

    def of_state(self, hidden: Tensor) -> Tensor:
        product: Tensor = self.hh(hidden)
        return product

    def projected(self, hidden: Tensor) -> Tensor:
        product: Tensor = hidden if self.hr is None else self.hr(hidden)
        return product
