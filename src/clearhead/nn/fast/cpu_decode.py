"""One decoding step on the CPU: all layers for one new position in one call of C.

Between small products, Python and torch take longer than the products. What the layers consist of is read once
(`pack_layer`) and remembered as a `DecodePlan`. Parts may be replaced, moved, quantised or hooked at any time, so a
plan is held against the living modules before each use, and made anew if anything in them is not as it was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from clearhead.nn.activations import Activation
from clearhead.nn.attention import Attention
from clearhead.nn.fast import cpu_kernels
from clearhead.nn.fast.cpu_layer import PackedLayer, pack_layer
from clearhead.nn.fast.quantized import QuantizedMatrix
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.kv_cache import LayerKVCache
from clearhead.nn.linear import FEW, is_plain
from clearhead.nn.masks import BoundMask
from clearhead.nn.torch_internals import has_global_forward_hooks
from clearhead.nn.tracing import is_tracing

# What the arithmetic takes from a module's own dictionary.
BLOCK_SETTINGS = itemgetter("placement", "residual_scale", "training")
SETTINGS: dict[type, Callable[[dict[str, Any]], object]] = {
    Attention: itemgetter("heads", "kv_heads", "head_dim", "scale", "fused", "cross", "rotary", "relative", "training"),
    FeedForward: itemgetter("training"),
    Activation: itemgetter("function"),
    nn.LayerNorm: itemgetter("eps", "normalized_shape"),
    QuantizedMatrix: itemgetter("kind"),
}
_bytes = attrgetter("nbytes")
_plans: WeakKeyDictionary[nn.Module, DecodePlan] = WeakKeyDictionary()  # not in the modules: those are copied and saved


def decode_step(
    kernels: cpu_kernels.Kernels,
    owner: nn.Module,  # who has these layers, and with whom the plan is kept and forgotten
    blocks: Sequence[nn.Module],  # `Block`s and no subclass
    x: Tensor,
    masks: Iterable[BoundMask],
    caches: Sequence[LayerKVCache],
) -> Tensor | None:
    """What the layers make of x (rows, 1, width), whose keys and values join the caches.

    None where the plain path must run; nothing has changed then.
    """
    shape = x.shape
    if (
        len(shape) != 3
        or shape[1] != 1
        or not 0 < shape[0] <= FEW
        or torch.is_grad_enabled()
        or is_tracing()
        or x.dtype is not torch.float32
        or not x.is_contiguous()
        or not is_plain(x)
        or has_global_forward_hooks()
        or not all(map(_sees_everything, masks))
    ):
        return None
    plan = _plans.get(owner)
    if plan is None or not plan.is_current(blocks):
        plan = DecodePlan.of(owner, blocks)
        if plan is None:
            _plans.pop(owner, None)
            return None
        _plans[owner] = plan
    rows, width = shape[0], shape[2]
    cache_fields: list[int] = []
    for layer, cache in zip(plan.layers, caches, strict=True):
        fields = _cache_fields(cache, rows, layer.kv_heads, layer.head_dim)
        if fields is None or layer.width != width:
            return None
        cache_fields += fields
    y = torch.empty_like(x)
    threads = torch.get_num_threads() if rows * width * plan.hidden > cpu_kernels.SMALL else 1
    count = len(blocks)
    cache_structs = struct.pack(f"{4 * count}q", *cache_fields)
    if not kernels.layers(plan.structs, cache_structs, count, x.data_ptr(), y.data_ptr(), rows, threads):
        return None
    for cache in caches:
        cache.length += 1
    return y


class DecodePlan:
    """Layers as C reads them, and what they were read from, to see whether that is still so."""

    def __init__(self, blocks: Sequence[nn.Module], layers: list[PackedLayer], called: bool) -> None:
        """called: whether the blocks would be called, and not only their forward."""
        self.layers = layers
        self.structs = b"".join(layer.struct for layer in layers)
        self.hidden = max(layer.hidden for layer in layers)
        # The blocks themselves are not kept, only their tables: a plan must not keep its owner alive.
        self._blocks = [id(block.__dict__) for block in blocks]
        self._modules = [module for layer in layers for module in layer.modules]
        modules = [*blocks, *self._modules]
        with_hooks = modules if called else self._modules
        self._hooks = [hooks for m in with_hooks for hooks in (m._forward_hooks, m._forward_pre_hooks)]
        self._dicts = [m.__dict__ for m in modules]
        self._settings = [(SETTINGS[type(m)], m.__dict__) for m in self._modules if type(m) in SETTINGS]
        self._settings += [(BLOCK_SETTINGS, block.__dict__) for block in blocks]
        tables = [(m._modules, m._parameters, m._buffers) for m in modules]
        self._tables: list[dict[str, Any]] = [table for three in tables for table in three if table]
        self._tensors = [tensor for layer in layers for tensor in layer.tensors]
        self._parts, self._facts = self._find_parts(), self._read_facts()

    @classmethod
    def of(cls, owner: nn.Module, blocks: Sequence[nn.Module]) -> DecodePlan | None:
        """None where the plain path must run."""
        layers: list[PackedLayer] = []
        for block in blocks:
            own = block.__dict__
            if block is not owner and ("forward" in own or own.get("_compiled_call_impl") is not None):
                return None
            layer = pack_layer(block)
            if layer is None:
                return None
            layers.append(layer)
        plan = cls(blocks, layers, owner is not blocks[0])
        return None if any(plan._hooks) else plan

    def is_current(self, blocks: Sequence[nn.Module]) -> bool:
        """Whether these are the blocks, and nothing in them has changed or is hooked."""
        if [id(block.__dict__) for block in blocks] != self._blocks or any(self._hooks):
            return False
        parts = self._find_parts()
        if len(parts) != len(self._parts) or not all(map(is_, parts, self._parts)):
            return False
        try:
            return self._read_facts() == self._facts
        except (RuntimeError, KeyError):  # a setting became a tensor, or a module
            return False

    def _find_parts(self) -> list[object]:
        """The parts themselves: modules and tensors. An equal one in a part's place is another one."""
        return list(chain.from_iterable(map(dict.values, self._tables)))

    def _read_facts(self) -> list[object]:
        """What is true of the parts. A step drives all else out of the processor's caches, so little is touched."""
        tensors = self._tensors
        return [
            *map(type, self._modules),
            *map(len, self._dicts),  # whoever gives a module another forward adds to its dictionary
            *[read(own) for read, own in self._settings],
            *map(Tensor.data_ptr, tensors),  # `tensor.data = …` changes these three, and nothing above
            *map(Tensor.stride, tensors),
            *map(_bytes, tensors),
        ]


def _sees_everything(mask: BoundMask) -> bool:
    return (
        type(mask) is BoundMask
        and not mask.is_causal
        and mask.visible is mask.added is mask.fully_masked is mask.band is None
    )


def _cache_fields(cache: LayerKVCache, rows: int, kv_heads: int, head_dim: int) -> tuple[int, int, int, int] | None:
    """The struct `Cache`: keys, values, capacity, past. None where one more position cannot simply be written: growing
    and sliding is the cache's."""
    if type(cache) is not LayerKVCache:
        return None
    keys, values, held = cache._keys, cache._values, cache.length - cache.dropped
    if keys is None or values is None or (cache._limit is not None and held >= cache._limit):
        return None
    capacity = keys.shape[2]
    if held >= capacity or keys.shape != (rows, kv_heads, capacity, head_dim) or values.shape != keys.shape:
        return None
    for tensor in (keys, values):
        if tensor.dtype is not torch.float32 or not tensor.is_cpu or not tensor.is_contiguous():
            return None
    return keys.data_ptr(), values.data_ptr(), capacity, held
