"""How many bits a model's weights get when it is loaded: as asked, or (quantize="auto") as this machine measures.

The rule of "auto": the fastest of fp32, bf16, int8 and int4 whose products of one row are off by at most 2 % (the
length of the error against the length of the result, on this model's own largest layer and its output matrix). int8
and bf16 usually are within it; int4 is not, so it is for those who ask for it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clearhead.errors import InputError, did_you_mean
from clearhead.models import Model
from clearhead.nn.fast import cpu_kernels
from clearhead.nn.fast.quantized import KINDS, QuantizedLinear, QuantizedMatrix, quantize_
from clearhead.nn.fused_recurrence import matrices_of
from clearhead.nn.linear import Linear

MAX_ERROR = 0.02
CHOICES = ("int8", "int4", "auto")
_CACHE_BYTES = 64 * 2**20  # bytes that push a small matrix out of the processor's caches, as the rest of a model would


@dataclass(frozen=True)
class PrecisionCost:
    """What one precision costs and loses."""

    name: str  # float32, bfloat16, int8 or int4
    milliseconds: float  # for the matrices of one token
    error: float  # length of the error / length of the result

    @property
    def fits(self) -> bool:
        return self.error <= MAX_ERROR


def check_quantize(quantize: str | None, dtype: torch.dtype | None, device: torch.device) -> None:
    """Complain before anything is read."""
    if quantize is None:
        return
    if quantize not in CHOICES:
        raise InputError(
            f"quantize cannot be {quantize!r}.{did_you_mean(str(quantize), CHOICES)} Known: {', '.join(CHOICES)}; "
            "or leave it out."
        )
    if device.type != "cpu":
        raise InputError(f"Quantised products run on the CPU here, not on {device}. Leave quantize or device out.")
    if dtype not in (None, torch.float32):
        name = str(dtype).removeprefix("torch.")
        raise InputError(f"A quantised model computes in float32, not {name}: leave dtype or quantize out.")


def apply(model: Model, quantize: str) -> Model:
    """Round the model's weights, in place; "auto" measures first and prints what it found."""
    if quantize == "auto":
        quantize = choose(model)
    if quantize in KINDS:
        quantize_(model, quantize)
        return model
    model.to(getattr(torch, quantize))
    for layer in model.modules():
        if isinstance(layer, Linear):  # the order that is read fastest
            layer.weight.data = layer.weight.data.contiguous()
    return model


def choose(model: Model) -> str:
    """The best precision by the rule above: "float32", "bfloat16", "int8" or "int4". Prints the table."""
    table = measure(model)
    best = min((row for row in table if row.fits), key=lambda row: row.milliseconds)
    print(f"quantize='auto', one token on {torch.get_num_threads()} threads:", file=sys.stderr)
    for row in table:
        mark = "chosen" if row is best else "" if row.fits else f"error above {MAX_ERROR:.0%}"
        print(f"  {row.name:9} {row.milliseconds:8.2f} ms   error {row.error:7.3%}   {mark}".rstrip(), file=sys.stderr)
    return best.name


@torch.no_grad()
def measure(model: Model, repeats: int = 5) -> list[PrecisionCost]:
    """Each precision on the largest layer (counted as often as its size goes into all layers) and the output matrix."""
    cpu_kernels.load()
    head = model.language_head
    outputs = [head.output] if head is not None and isinstance(head.output, Linear) else []
    layers = [m.weight for m in model.modules() if isinstance(m, Linear) and m not in outputs]
    layers += [weight for m in model.modules() if isinstance(m, nn.RNNBase) for weight in matrices_of(m)]
    if not layers:
        raise InputError("This model has no matrices to quantise.")
    largest = max(layers, key=Tensor.numel)
    repeated = sum(weight.numel() for weight in layers) / largest.numel()
    samples = [(largest, repeated), *((m.weight, 1.0) for m in outputs)]
    generator = torch.Generator().manual_seed(0)
    caches = torch.zeros(_CACHE_BYTES // 4)
    cost = dict.fromkeys(("float32", "bfloat16", *KINDS), 0.0)
    error = dict.fromkeys(cost, 0.0)
    for matrix, count in samples:
        weight = matrix.detach().float()
        x = torch.randn(1, weight.shape[1], generator=generator)
        exact = torch.nn.functional.linear(x, weight)
        for name in cost:
            product = _product(weight, name)
            result = product(x).float()  # once untimed
            seconds = []
            for _ in range(repeats):
                caches.add_(1)
                start = time.perf_counter()
                product(x)
                seconds.append(time.perf_counter() - start)
            cost[name] += statistics.median(seconds) * count * 1000
            error[name] = max(error[name], float((result - exact).norm() / exact.norm().clamp_min(1e-30)))
    return [PrecisionCost(name, cost[name], error[name]) for name in cost]


def _product(weight: Tensor, name: str) -> Callable[[Tensor], Tensor]:
    if name in KINDS:
        return QuantizedLinear(QuantizedMatrix(weight, name))
    dtype = getattr(torch, name)
    layer = Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    rounded = weight if name == "float32" else weight.to(dtype).contiguous()
    layer.weight = torch.nn.Parameter(rounded, requires_grad=False)
    return lambda x: layer(x.to(dtype))
