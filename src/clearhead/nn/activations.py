"""Activations by the names that published configurations use."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import ConfigError, did_you_mean

_TWICE = 2 * math.sqrt(2 / math.pi)


def gelu_new(x: Tensor) -> Tensor:
    """GPT-2's GELU: the tanh approximation, written out by its authors."""
    if torch.compiler.is_compiling():  # the same, as a sigmoid: compiled code has no quick tanh
        return x * torch.sigmoid(_TWICE * (x + 0.044715 * x * x * x))
    return F.gelu(x, approximate="tanh")


def _gelu_10(x: Tensor) -> Tensor:
    return F.gelu(x).clip(-10, 10)


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _laplace(x: Tensor) -> Tensor:
    return 0.5 * (1 + torch.erf((x - 0.707107) / (0.282095 * math.sqrt(2))))


def _relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


def _identity(x: Tensor) -> Tensor:
    return x


def _sqrt_softplus(x: Tensor) -> Tensor:
    return F.softplus(x).sqrt()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_python": F.gelu,
    "gelu_new": gelu_new,
    "gelu_fast": gelu_new,
    "gelu_accurate": gelu_new,
    "gelu_pytorch_tanh": gelu_new,
    "gelu_python_tanh": gelu_new,
    "gelu_10": _gelu_10,
    "quick_gelu": _quick_gelu,
    "relu": F.relu,
    "relu2": _relu_squared,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "silu": F.silu,
    "swish": F.silu,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "laplace": _laplace,
    "linear": _identity,
    "sqrtsoftplus": _sqrt_softplus,
}

# These carry weights of their own, which no published checkpoint of our families has.
_LEARNED = ("prelu", "xielu")


class Activation(nn.Module):
    """A named activation as a module, so that it shows in a model's printout."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.function = activation(name)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        return self.name


def activation(name: str) -> Callable[[Tensor], Tensor]:
    if name in _LEARNED:
        raise ConfigError(f"The activation {name!r} has learned parameters; Clearhead does not implement it.")
    if name not in ACTIVATIONS:
        raise ConfigError(
            f"Unknown activation {name!r}.{did_you_mean(name, ACTIVATIONS)} Known: {', '.join(ACTIVATIONS)}."
        )
    return ACTIVATIONS[name]
