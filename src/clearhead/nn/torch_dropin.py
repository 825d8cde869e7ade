"""Drop-ins for the transformer classes of `torch.nn`: swap the import, get the same numbers plus glass walls.

Each class is torch's own with another `forward`: arguments, attributes, first weights and state dicts stay.

Three things differ on purpose:
- A query that may see no key gets zeros; torch gives NaN.
- A float mask is always added to the scores; torch's inference fast path hides every key that has no 0 there.
- `is_causal=True` without a mask is always an error; torch's inference fast path ignores the hint.

What is announced has Clearhead's shapes, (batch, time, width) and (batch, heads, time, head_dim): batch first
whatever `batch_first` says, and an input without a batch as a batch of one.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.nn.attention import ATTENTION_TAPS, attend, attention_weights
from clearhead.nn.masks import BoundMask, Mask
from clearhead.nn.tracing import is_watched, tap

Layout = Literal["batch first", "time first", "no batch"]


class TorchInputError(InputError, RuntimeError, AssertionError):
    """An `InputError` that code written for torch.nn, which raises one of the other two, still catches."""


def _layout(x: Tensor, batch_first: bool) -> Layout:
    return "no batch" if x.ndim == 2 else "batch first" if batch_first else "time first"


def _to_batch(x: Tensor, layout: Layout) -> Tensor:
    """(batch, time, …) from what a module was given."""
    return x[None] if layout == "no batch" else x if layout == "batch first" else x.transpose(0, 1)


def _from_batch(x: Tensor, layout: Layout) -> Tensor:
    """The way back."""
    return x[0] if layout == "no batch" else x if layout == "batch first" else x.transpose(0, 1)


def _tap(module: nn.Module, name: str, x: Tensor, batch_first: bool) -> Tensor:
    """`tap`, for a tensor in the layout of the module."""
    if not is_watched(module, name):
        return x
    layout = _layout(x, batch_first)
    return _from_batch(tap(module, name, _to_batch(x, layout)), layout)


def _check_mask(name: str, mask: Tensor, *shapes: tuple[int, ...]) -> None:
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TorchInputError(f"{name} must be bool (True = hidden) or float (added to the scores), not {mask.dtype}.")
    if shapes and mask.shape not in shapes:
        expected = " or ".join(map(str, shapes))
        raise TorchInputError(f"{name} has shape {tuple(mask.shape)}; for these inputs it must be {expected}.")


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` with glass walls.

    The keys and values announced hold those of `add_bias_kv` and `add_zero_attn` too, after the given ones.
    """

    taps = ATTENTION_TAPS

    def forward(
        self,
        query: Tensor,  # (batch, Q, embed_dim), (Q, batch, embed_dim) or (Q, embed_dim)
        key: Tensor,  # the same with K and kdim
        value: Tensor,  # the same with K and vdim
        key_padding_mask: Tensor | None = None,  # (batch, K) or (K,): True = hidden, or float, added
        need_weights: bool = True,
        attn_mask: Tensor | None = None,  # (Q, K) or (batch · heads, Q, K): True = hidden, or float, added
        average_attn_weights: bool = True,
        is_causal: bool = False,  # says that attn_mask is the causal one, so that it need not be read
    ) -> tuple[Tensor, Tensor | None]:
        self._check(query, key, value)
        if is_causal and attn_mask is None:
            raise TorchInputError(
                "is_causal=True says that attn_mask is causal, but there is no attn_mask. Give one as well: "
                "Transformer.generate_square_subsequent_mask(length) makes it."
            )
        layout = _layout(query, self.batch_first)
        q, k, v = (
            # (…, embed_dim) -> (batch, time, heads, head_dim) -> (batch, heads, time, head_dim)
            _to_batch(x.unflatten(-1, (self.num_heads, self.head_dim)), layout).transpose(1, 2)
            for x in self._project(query, key, value)
        )
        appended = 0  # keys after the given ones
        if self.bias_k is not None and self.bias_v is not None:
            k, v, appended = self._append(k, self.bias_k), self._append(v, self.bias_v), appended + 1
        if self.add_zero_attn:
            k, v, appended = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), appended + 1
        q, k, v = tap(self, "query", q), tap(self, "key", k), tap(self, "value", v)
        if is_causal and key_padding_mask is None and not need_weights:
            mask = _causal(q.shape[2], k.shape[2], q.device)
        else:
            mask = self._bind(attn_mask, key_padding_mask, q, k, appended, layout)

        scale, dropout = self.head_dim**-0.5, self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            # torch, too, returns the weights as dropout has left them
            weights = F.dropout(attention_weights(self, q, k, mask, scale=scale), dropout)
            heads = tap(self, "heads", weights @ v)
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights[0] if layout == "no batch" else weights
        else:
            heads = attend(self, q, k, v, mask, scale=scale, dropout=dropout)
        # (batch, heads, Q, head_dim) -> (batch, Q, heads, head_dim) -> (…, embed_dim)
        output = self.out_proj(_from_batch(heads.transpose(1, 2), layout).flatten(-2))
        return _tap(self, "output", output, self.batch_first), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.is_nested or key.is_nested or value.is_nested:
            raise TorchInputError("Nested tensors are not supported: pass padded ones with a key_padding_mask.")
        if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            raise TorchInputError(
                "query, key and value must all have 3 dimensions, or all 2 without a batch; "
                f"they have {query.ndim}, {key.ndim} and {value.ndim}."
            )
        expected = (self.embed_dim, self.kdim, self.vdim)
        widths = (query.shape[-1], key.shape[-1], value.shape[-1])
        if widths != expected:
            raise TorchInputError(f"query, key and value must have the widths {expected}, not {widths}.")
        batch = 0 if self.batch_first else 1
        if key.shape[:-1] != value.shape[:-1] or (query.ndim == 3 and query.shape[batch] != key.shape[batch]):
            raise TorchInputError(
                "key and value must have the same batch and length, and query the same batch; the shapes are "
                f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
            )

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if self.in_proj_weight is None:
            matrices: tuple[Tensor, ...] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif query is key and key is value:
            return F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            matrices = self.in_proj_weight.chunk(3)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return tuple(map(F.linear, (query, key, value), matrices, biases))

    def _append(self, x: Tensor, learned: Tensor) -> Tensor:
        """One more key or value for all sequences: (1, 1, embed_dim) behind (batch, heads, K, head_dim)."""
        last = learned.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        return torch.cat([x, last.expand(x.shape[0], -1, -1, -1)], dim=2)

    def _bind(
        self,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        q: Tensor,
        k: Tensor,
        appended: int,
        layout: Layout,
    ) -> BoundMask:
        """Both masks as one. The last keys, `appended` in number, were not in the input and are never hidden."""
        (batch, heads, query), key = q.shape[:3], k.shape[2] - appended
        parts = []
        if attn_mask is not None:
            _check_mask("attn_mask", attn_mask, (query, key), (batch * heads, query, key))
            parts.append(attn_mask.unflatten(0, (batch, heads)) if attn_mask.ndim == 3 else attn_mask[None, None])
        if key_padding_mask is not None:
            expected = (key,) if layout == "no batch" else (batch, key)
            _check_mask("key_padding_mask", key_padding_mask, expected)
            parts.append(key_padding_mask.reshape(batch, 1, 1, key))
        if appended:
            parts = [F.pad(part, (0, appended)) for part in parts]
        visible = tuple(~part for part in parts if part.dtype == torch.bool)
        added = tuple(part for part in parts if part.dtype != torch.bool)
        return Mask(visible=visible, added=added).bind(query, key + appended, q.device)


def _causal(query: int, key: int, device: torch.device) -> BoundMask:
    """Query i sees the keys 0 to i, as torch has it even where there are more keys or fewer than queries."""
    if query == key:
        return BoundMask(is_causal=True)
    return BoundMask(visible=torch.ones(query, key, dtype=torch.bool, device=device).tril())


class _Layer(nn.Module):
    """What the layers of encoder and decoder share.

    `_sa_block` and `_mha_block` (torch's own) and `_ff_block` keep their names: subclasses override them.
    """

    taps = ("input", "feedforward.hidden", "feedforward.output", "output")
    tap_names = {"self_attn": "attention", "multihead_attn": "cross_attention"}

    self_attn: nn.MultiheadAttention
    linear1: nn.Linear
    linear2: nn.Linear
    dropout: nn.Dropout
    activation: Callable[[Tensor], Tensor]
    norm_first: bool

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        options = (dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)
        super().__init__(d_model, nhead, dim_feedforward, *options)
        # torch has just made plain attention modules. They get our class, and keep their weights: to make new
        # ones would draw random numbers twice, and the same seed would give other weights than torch's.
        for child in self.children():
            if type(child) is nn.MultiheadAttention:
                child.__class__ = MultiheadAttention

    def _residual(self, norm: nn.Module, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """The residual stream around a sublayer, with the norm on the way in or behind the sum."""
        return x + sublayer(norm(x)) if self.norm_first else norm(x + sublayer(x))

    def _feedforward(self, x: Tensor) -> Tensor:
        hidden = self._tap("feedforward.hidden", self.activation(self.linear1(x)))
        return self._tap("feedforward.output", self.linear2(self.dropout(hidden)))

    def _tap(self, name: str, x: Tensor) -> Tensor:
        return _tap(self, name, x, self.self_attn.batch_first)


class TransformerEncoderLayer(_Layer, nn.TransformerEncoderLayer):
    """`torch.nn.TransformerEncoderLayer` with glass walls."""

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = self._tap("input", src)
        x = self._residual(self.norm1, x, lambda x: self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self._tap("output", self._residual(self.norm2, x, self._ff_block))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._feedforward(x))


class TransformerDecoderLayer(_Layer, nn.TransformerDecoderLayer):
    """`torch.nn.TransformerDecoderLayer` with glass walls."""

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = self._tap("input", tgt)
        self_masks = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        memory_masks = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = self._residual(self.norm1, x, lambda x: self._sa_block(x, *self_masks))
        x = self._residual(self.norm2, x, lambda x: self._mha_block(x, memory, *memory_masks))
        return self._tap("output", self._residual(self.norm3, x, self._ff_block))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._feedforward(x))


class _Layers(nn.Module):
    """What encoder and decoder share: layers of any make, and perhaps a norm after the last."""

    layers: nn.ModuleList
    norm: nn.Module | None

    @property
    def taps(self) -> tuple[str, ...]:
        return ("final.norm",) if self.norm is not None else ()

    @property
    def _batch_first(self) -> bool:
        return self.layers[0].self_attn.batch_first  # type: ignore[union-attr, return-value]

    def _is_causal(self, x: Tensor, mask: Tensor | None, hint: bool | None) -> bool:
        """What the caller says; without a word, whether the mask is causal (a compiled graph cannot look at it)."""
        if hint is not None or mask is None or torch.compiler.is_compiling():
            return bool(hint)
        _check_mask("mask", mask)
        time = _to_batch(x, _layout(x, self._batch_first)).shape[1]
        return torch.equal(mask, Transformer.generate_square_subsequent_mask(time, mask.device, mask.dtype))

    def _finish(self, x: Tensor) -> Tensor:
        return x if self.norm is None else _tap(self, "final.norm", self.norm(x), self._batch_first)


class TransformerEncoder(_Layers, nn.TransformerEncoder):
    """`torch.nn.TransformerEncoder` with glass walls in every layer that has them."""

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        zeroed = self._zeroed_padding(src, mask, src_key_padding_mask)
        # Float, as torch has it: a layer of somebody else's may count on that.
        mask = _as_float("mask", mask, src.dtype)
        padding = _as_float("src_key_padding_mask", src_key_padding_mask, src.dtype)
        causal = self._is_causal(src, mask, is_causal)
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        return self._finish(x if zeroed is None else x.masked_fill(zeroed[..., None], 0.0))

    def _zeroed_padding(self, src: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor | None:
        """Which positions to fill with zeros (None: no position).

        Where nothing is trained, torch takes the padding off, runs the layers on nested tensors, then puts
        zeros in its place. These are its conditions; the constructor has settled some in `use_nested_tensor`.
        """
        if not self.use_nested_tensor or not torch.backends.mha.get_fastpath_enabled():
            return None
        if mask is not None or padding is None or src.ndim != 3 or padding.shape != src.shape[:2]:
            return None
        first = self.layers[0]
        wants_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (src, *first.parameters()))
        if wants_grad or first.training or torch.is_autocast_enabled():
            return None
        unreadable = self.mask_check and torch.compiler.is_compiling()  # a compiled graph cannot look at the mask
        if unreadable or src.device.type not in ("cpu", "cuda", "xpu"):
            return None
        hidden = padding if padding.dtype == torch.bool else padding == -torch.inf
        at_the_end = not self.mask_check or bool((hidden[:, 1:] >= hidden[:, :-1]).all())
        return hidden if at_the_end else None


def _as_float(name: str, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is None:
        return None
    _check_mask(name, mask)
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)


class TransformerDecoder(_Layers, nn.TransformerDecoder):
    """`torch.nn.TransformerDecoder` with glass walls in every layer that has them."""

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        causal = self._is_causal(tgt, tgt_mask, tgt_is_causal)
        x = tgt
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return self._finish(x)


class Transformer(nn.Transformer):
    """`torch.nn.Transformer` with glass walls: its encoder and decoder are ours, unless others are given."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        custom_encoder: Any | None = None,
        custom_decoder: Any | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        options = (dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)

        def norm() -> nn.Module:
            return nn.LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        # Encoder, then decoder, as torch makes them: the order in which random numbers are drawn.
        if custom_encoder is None:
            encoder_layer = TransformerEncoderLayer(d_model, nhead, dim_feedforward, *options)
            custom_encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norm())
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(d_model, nhead, dim_feedforward, *options)
            custom_decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm())
        super().__init__(
            d_model,
            nhead,
            custom_encoder=custom_encoder,
            custom_decoder=custom_decoder,
            batch_first=batch_first,
        )
