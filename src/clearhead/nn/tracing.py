"""Tracing: the glass walls. Blocks announce their inner tensors with `tap`; a `trace` keeps them or replaces them.

A module that announces tensors lists their names in `taps`. The full name of a tensor is the path of its module
in the model plus that name: `layers.3.attention.weights`. A module may give a child another name in `tap_names`
(`""` leaves the child out of the path), so that names stay the same whatever a family calls its parts.

When nobody is looking, `tap` is one test of an empty list: `torch.compile` folds it away.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import InputError, TraceError, near
from clearhead.nn.torch_internals import dynamo_is_loaded

_open_traces: list[Trace] = []
_lock = threading.Lock()
_eager_stance: Any = None  # keeps compiled code out while any trace of any thread is open


def tap(module: nn.Module, name: str, tensor: Tensor) -> Tensor:
    """Announce `tensor` as `name` of `module`; returns it, or what a trace puts in its place."""
    if not _open_traces:
        return tensor
    for trace in tuple(_open_traces):  # another thread may close its own meanwhile
        tensor = trace._see(module, name, tensor)
    return tensor


def is_watched(module: nn.Module, *names: str) -> bool:
    """Whether a trace asked for any of these tensors of `module`, so that they must be computed at all."""
    return bool(_open_traces) and any(trace._wants(module, name) for trace in tuple(_open_traces) for name in names)


def is_replaced(module: nn.Module, name: str) -> bool:
    """Whether a trace will put something in this tensor's place."""
    return any(trace._replaces(module, name) for trace in tuple(_open_traces))


def replaced(module: nn.Module, name: str, tensor: Tensor) -> Tensor:
    """What traces put in the tensor's place; unlike `tap`, nothing is kept. For tensors that come step by step."""
    for trace in tuple(_open_traces):
        tensor = trace._replacement(module, name, tensor)
    return tensor


def is_tracing() -> bool:
    """Whether a trace of this thread is looking."""
    return bool(_open_traces) and any(trace._thread == threading.get_ident() for trace in tuple(_open_traces))


def tap_points(model: Any) -> dict[str, tuple[nn.Module, str]]:
    """Every tensor that `model` announces: full name -> (module, the module's own name for it)."""
    points: dict[str, tuple[nn.Module, str]] = {}

    def walk(module: nn.Module, path: str) -> None:
        module = _unwrapped(module)
        for name in getattr(module, "taps", ()):
            points.setdefault(path + name, (module, name))
        renamed: Mapping[str, str] = getattr(module, "tap_names", {})
        for child_name, child in module.named_children():
            name = renamed.get(child_name, child_name)
            walk(child, f"{path}{name}." if name else path)

    walk(_network(model), "")
    return points


def _network(model: Any) -> nn.Module:
    """The model itself, or the one inside what `ch.load` returns, which holds it as .model."""
    network = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(network, nn.Module):
        raise InputError(
            f"A model (a torch module, or what ch.load returns) is needed here, not {type(model).__name__}."
        )
    return network


def _unwrapped(module: nn.Module) -> nn.Module:
    """The module inside what torch puts around it to compile, to checkpoint or to run in parallel."""
    for inside in ("_orig_mod", "_checkpoint_wrapped_module"):
        module = getattr(module, inside, module)
    if type(module).__module__.startswith("torch.nn.parallel"):
        return _unwrapped(module.module)  # type: ignore[arg-type]
    return module


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """`*` stands for anything inside one part of a name, `**` for any number of parts, `a|b` for either."""
    parts = []
    for part in pattern.split("."):
        if part == "**":
            parts.append(r".+")
        else:
            choices = [
                "".join("[^.]*" if c == "*" else "[^.]" if c == "?" else re.escape(c) for c in choice)
                for choice in part.split("|")
            ]
            parts.append(choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})")
    return re.compile(r"\.".join(parts))


def _unknown(name: str, points: Mapping[str, object]) -> TraceError:
    # Compare with the layer number taken out, so that one near name does not fill the list twelve times over.
    patterns: dict[str, str] = {}
    for point in points:
        patterns.setdefault(re.sub(r"\d+", "*", point), point)
    close = near(re.sub(r"\d+", "*", name), patterns)
    layers = {m.group(1) for p in points if (m := re.search(r"layers\.(\d+)\.", p))}
    layer = re.search(r"layers\.(\d+)\.", name)
    if layer and layers and layer.group(1) not in layers:
        return TraceError(f"No tensor is called {name!r}: the layers are numbered 0 to {max(map(int, layers))}.")
    listing = ", ".join(close) if close else ", ".join(list(patterns)[:12])
    return TraceError(f"No tensor is called {name!r}. Near names: {listing}. All of them: tap_points(model).")


class Trace(Mapping[str, Tensor]):
    """Watches a model while it runs inside a `with` block; afterwards, a mapping from name to tensor.

    patterns    names to keep; `*` matches inside one part of a name, `**` across parts, `a|b` either
    replace     {pattern: function or tensor}: what to put in a tensor's place; a function gets the tensor
    detach      keep values only, without the autograd graph
    cpu         keep copies in main memory (implies detach)
    last        keep the last position of the time axis only (implies detach)
    every       keep the tensors of every call as a list (`seen.calls(name)`), not the last call's alone
    """

    def __init__(
        self,
        model: Any,
        *patterns: str,
        replace: Mapping[str, Callable[[Tensor], Tensor] | Tensor] | None = None,
        detach: bool = False,
        cpu: bool = False,
        last: bool = False,
        every: bool = False,
    ) -> None:
        self.model = _network(model)
        self._points = tap_points(self.model)
        self._kept: dict[tuple[int, str], str] = {}
        self._replaced: dict[tuple[int, str], tuple[str, Callable[[Tensor], Tensor] | Tensor]] = {}
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise InputError(f"A pattern is a string, not {type(pattern).__name__}: trace(model, 'a', 'b').")
            for name in self._match(pattern):
                module, own = self._points[name]
                self._kept[id(module), own] = name
        for pattern, new in (replace or {}).items():
            if not callable(new) and not isinstance(new, Tensor):
                raise InputError(f"{pattern!r} can be replaced by a function or a tensor, not {type(new).__name__}.")
            for name in self._match(pattern):
                module, own = self._points[name]
                self._replaced[id(module), own] = (name, new)
        self._detach, self._cpu, self._last, self._every = detach or cpu or last, cpu, last, every
        self._seen: dict[str, list[Tensor]] = {}
        self._thread: int | None = None

    def _match(self, pattern: str) -> list[str]:
        matching = [name for name in self._points if compile_pattern(pattern).fullmatch(name)]
        if not matching:
            raise _unknown(pattern, self._points)
        return matching

    def __enter__(self) -> Trace:
        if self in _open_traces:
            raise TraceError("This trace is already open; make a second one to nest them.")
        self._thread = threading.get_ident()
        self._seen.clear()
        # Compiled code has no taps left in it: run such models eagerly while somebody looks.
        global _eager_stance
        with _lock:
            if _eager_stance is None and dynamo_is_loaded():
                _eager_stance = torch.compiler.set_stance("force_eager")
            _open_traces.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        global _eager_stance
        with _lock:
            _open_traces.remove(self)
            if not _open_traces and _eager_stance is not None:
                _eager_stance.__exit__(None, None, None)
                _eager_stance = None

    def _wants(self, module: nn.Module, name: str) -> bool:
        key = (id(module), name)
        return self._thread == threading.get_ident() and (key in self._kept or key in self._replaced)

    def _replaces(self, module: nn.Module, name: str) -> bool:
        return self._thread == threading.get_ident() and (id(module), name) in self._replaced

    def _replacement(self, module: nn.Module, name: str, tensor: Tensor) -> Tensor:
        """What the caller puts in the tensor's place, or the tensor itself."""
        if not self._replaces(module, name):
            return tensor
        full_name, new = self._replaced[id(module), name]
        replacement = new(tensor) if callable(new) else new
        if not isinstance(replacement, Tensor) or replacement.shape != tensor.shape:
            got = tuple(replacement.shape) if isinstance(replacement, Tensor) else type(replacement).__name__
            raise InputError(
                f"The replacement of {full_name} must be a tensor of shape {tuple(tensor.shape)}, got {got}."
            )
        return replacement.to(tensor)

    def _see(self, module: nn.Module, name: str, tensor: Tensor) -> Tensor:
        if not self._wants(module, name):
            return tensor
        key = (id(module), name)
        tensor = self._replacement(module, name, tensor)
        if key in self._kept:
            kept = tensor
            if self._detach:
                kept = kept.detach()
            if self._last and kept.ndim >= 3:  # every tensor with a time axis has it next to last
                kept = kept[..., -1:, :].clone()
            if self._cpu:
                kept = kept.to("cpu", copy=True)
            calls = self._seen.setdefault(self._kept[key], [])
            if not self._every:
                calls.clear()
            calls.append(kept)
        return tensor

    def calls(self, name: str) -> list[Tensor]:
        """The tensor of every call inside the block, in order (with `every=True`; else the last call's alone)."""
        if name in self._seen:
            return self._seen[name]
        if name not in self._points:
            raise _unknown(name, self._points)
        if name not in self._kept.values():
            raise TraceError(f"{name!r} exists, but this trace was not asked to keep it.")
        raise TraceError(f"{name!r} was not computed: run the model inside the `with` block.")

    def __getitem__(self, name: str) -> Tensor:
        return self.calls(name)[-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._seen)

    def __len__(self) -> int:
        return len(self._seen)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        lines = [f"  {name}: {tuple(calls[-1].shape)}" for name, calls in self._seen.items()]
        return "\n".join([f"Trace of {len(self._seen)} tensors", *lines])


trace = Trace
