"""Who may see whom. A `Mask` says it in parts that compose; `bind` turns it into what one attention call needs.

Nothing dense is built while a causal flag will do. A query that may see no key at all gets zeros, not NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.nn.band import Band


@dataclass(frozen=True)
class BoundMask:
    """A mask for given lengths. At most one of `is_causal`, the dense tensors and `band` is in use.

    band   a sliding window: the tensors are those of its blocks, to be used between `band.fold` and `band.unfold`
    """

    is_causal: bool = False  # only for as many queries as keys: torch aligns the flag top left
    visible: Tensor | None = None  # bool, True = may be seen; broadcastable to (batch, heads, query, key)
    added: Tensor | None = None  # float, added to the scores; same shape rule
    fully_masked: Tensor | None = (
        None  # bool (…, query, 1): queries that see nothing; they are opened above, zeroed after
    )
    band: Band | None = None

    def dense(self) -> BoundMask:
        """The same mask over whole rows, for whoever needs to see or add to every score."""
        if self.band is None:
            return self
        visible = () if self.band.visible_keys is None else (self.band.visible_keys[:, None, None],)
        device = "cpu" if self.visible is None else self.visible.device
        return Mask(self.band.causal, self.band.window, visible).bind(self.band.query, self.band.key, device)

    @property
    def same_for_all_queries(self) -> bool:
        """Whether all queries see the same keys."""
        tensors = [part for part in (self.visible, self.added) if part is not None]
        return not self.is_causal and self.band is None and all(part.shape[-2] == 1 for part in tensors)

    def repeat(self, count: int) -> BoundMask:
        """Every row `count` times, side by side."""
        visible, added, fully_masked = (
            None if t is None else t.repeat_interleave(count, 0) for t in (self.visible, self.added, self.fully_masked)
        )
        return BoundMask(self.is_causal, visible, added, fully_masked)

    def hide(self, scores: Tensor) -> Tensor:
        """scores (batch, heads, query, key) with hidden keys at -inf."""
        if self.is_causal:
            query, key = scores.shape[-2:]
            return scores.masked_fill(~_distance_visible(query, key, None, scores.device), -torch.inf)
        if self.added is not None:
            scores = scores + _fit_dtype(self.added, scores.dtype)
        if self.visible is not None:
            scores = scores.masked_fill(~self.visible, -torch.inf)
        return scores

    def for_sdpa(self, dtype: torch.dtype, bias: Tensor | None = None) -> Tensor | None:
        """One tensor for `scaled_dot_product_attention`: bool where it can be, else float in the query's dtype."""
        if self.is_causal:
            return None if bias is None else self.hide(bias).to(dtype)
        parts = [part for part in (bias, self.added) if part is not None]
        if not parts:
            return self.visible
        dense = _fit_dtype(reduce(torch.add, parts), dtype).to(dtype)
        return dense if self.visible is None else dense.masked_fill(~self.visible, -torch.inf)


def _fit_dtype(added: Tensor, dtype: torch.dtype) -> Tensor:
    """Large numbers stay numbers in a narrower type (finfo(float32).min is -inf in half precision); -inf stays -inf."""
    lowest = max(torch.finfo(dtype).min, torch.finfo(added.dtype).min)  # autocast may have made it the narrower of both
    return added.clamp(min=lowest).masked_fill(added == -torch.inf, -torch.inf)


@dataclass(frozen=True)
class Mask:
    """A composition: causal order, a local window, and any number of boolean or additive masks.

    window w lets position i see j only where |i - j| < w (so with causal order: itself and w - 1 before it).
    """

    causal: bool = False
    window: int | None = None
    visible: tuple[Tensor, ...] = ()  # bool, True = may be seen
    added: tuple[Tensor, ...] = ()  # float, added to the scores

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise InputError(f"A window of {self.window} positions would hide everything; it must be at least 1.")

    def __and__(self, other: Mask) -> Mask:
        windows = [w for w in (self.window, other.window) if w is not None]
        return Mask(
            self.causal or other.causal,
            min(windows) if windows else None,
            self.visible + other.visible,
            self.added + other.added,
        )

    def within(self, window: int | None) -> Mask:
        """The same mask, narrowed to a local window (None: unchanged)."""
        return self if window is None else self & Mask(window=window)

    def of_last(self, keys: int) -> Mask:
        """The same mask where only the last `keys` keys are at hand."""
        return Mask(self.causal, self.window, *(tuple(p[..., -keys:] for p in q) for q in (self.visible, self.added)))

    def bind(
        self,
        query: int,
        key: int,
        device: torch.device | str = "cpu",
        *,
        batch: int | None = None,
        none_fully_masked: bool = False,
    ) -> BoundMask:
        """For `query` positions that are the last of `key` positions (with a cache, `key` is larger).

        batch: how many texts. If it is given, a window over more than twice its length is bound as a `Band`.
        none_fully_masked: the caller knows that every query sees something
        """
        window = self.window if self.window is not None and self.window < max(query, key) else None
        only_keys = len(self.added) == 0 and all(
            part.ndim == 4 and part.shape[1] == part.shape[2] == 1 for part in self.visible
        )
        if batch is not None and window is not None and only_keys and query > 2 * window:
            visible_keys = reduce(torch.logical_and, self.visible)[:, 0, 0] if self.visible else None
            band = Band(window, self.causal, query, key, visible_keys)
            in_block = band.visible(batch, device)
            fully_masked = ~in_block.any(-1, keepdim=True)
            return BoundMask(visible=in_block | fully_masked, fully_masked=fully_masked, band=band)
        causal = self.causal and query > 1  # one last query sees everything before it anyway
        if not self.visible and not self.added:
            if window is None and not causal:
                return BoundMask()
            if window is None and query == key:
                return BoundMask(is_causal=True)
        parts = list(self.visible)
        if causal or window is not None:
            parts.append(_distance_visible(query, key, window, device, causal=self.causal))
        visible = reduce(torch.logical_and, parts) if parts else None
        added = reduce(torch.add, self.added) if self.added else None
        if none_fully_masked:
            return BoundMask(visible=visible, added=added)

        seen = visible
        if added is not None:
            finite = added > -torch.inf
            seen = finite if seen is None else seen & finite
        assert seen is not None
        fully_masked = ~seen.any(-1, keepdim=True)
        if visible is not None:
            visible = visible | fully_masked
        if added is not None:
            added = added.masked_fill(fully_masked, 0.0)
        return BoundMask(visible=visible, added=added, fully_masked=fully_masked)


def _distance_visible(
    query: int, key: int, window: int | None, device: torch.device | str, causal: bool = True
) -> Tensor:
    """(query, key) bool, from the distance between positions; the queries are the last of the keys."""
    i = torch.arange(key - query, key, device=device)[:, None]
    j = torch.arange(key, device=device)[None, :]
    visible = torch.ones(query, key, dtype=torch.bool, device=device) if window is None else (i - j).abs() < window
    return visible & (j <= i) if causal else visible


def from_attention_mask(
    mask: Tensor | None, batch: int, query: int, key: int, heads: int | None = None, name: str = "attention_mask"
) -> Mask:
    """What users pass as `attention_mask`.

    (batch, key) or (batch, query, key): 1 = may be seen, 0 = hidden.
    (batch, 1 or heads, query, key): bool, True = may be seen; or float, added to the scores.
    """
    if mask is None:
        return Mask()
    if not isinstance(mask, Tensor):
        raise InputError(f"{name} must be a tensor, not {type(mask).__name__}.")
    shapes = f"({batch}, {key}), ({batch}, {query}, {key}) or ({batch}, 1 or heads, {query}, {key})"
    fits = {
        2: mask.shape == (batch, key),
        3: mask.shape == (batch, query, key),
        4: mask.ndim == 4
        and mask.shape[0] in (1, batch)
        and (heads is None or mask.shape[1] in (1, heads))
        and mask.shape[2] in (1, query)
        and mask.shape[3] == key,
    }
    if not fits.get(mask.ndim, False):
        raise InputError(
            f"{name} has shape {tuple(mask.shape)}; for these inputs it must be {shapes}. "
            "With a cache it covers the cached positions too."
        )
    if mask.ndim == 4:
        if mask.dtype == torch.bool:
            return Mask(visible=(mask,))
        if mask.is_floating_point():
            return Mask(added=(mask,))
        raise InputError(f"A 4-D {name} must be bool (True = seen) or float (added), not {mask.dtype}.")
    if mask.dtype != torch.bool:
        if can_inspect(mask) and not bool(((mask == 0) | (mask == 1)).all()):
            raise InputError(
                f"A {mask.ndim}-D {name} holds 1 (seen) and 0 (hidden) only; this one has other values. "
                "To add numbers to the scores, pass a 4-D float mask."
            )
        mask = mask != 0
    if not torch.compiler.is_compiling() and bool(mask.all()):
        return Mask()  # nothing is hidden: the fast path is worth this look, even where it waits for a GPU
    return Mask(visible=(mask[:, None, None, :] if mask.ndim == 2 else mask[:, None],))


def can_inspect(tensor: Tensor) -> bool:
    """Whether values may be looked at without stalling an accelerator or breaking a compiled graph."""
    return tensor.device.type == "cpu" and tensor.numel() > 0 and not torch.compiler.is_compiling()
