"""A stack: an embedder, layers, a final norm. An encoder, a decoder, or the whole body of BERT or GPT-2.

`forward` embeds what it is given; `run` is the rest, vectors in, vectors out, and knows no tokens.
"""

from collections.abc import Iterable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clearhead.errors import InputError
from clearhead.nn.block import Block
from clearhead.nn.embedding import Embedder, TokenEmbedder
from clearhead.nn.fast import cpu_kernels
from clearhead.nn.fast.cpu_decode import decode_step
from clearhead.nn.kv_cache import KVCache, StaticKVCache
from clearhead.nn.masks import BoundMask, Mask, from_attention_mask
from clearhead.nn.neighbors import NeighborReading
from clearhead.nn.tracing import is_tracing, tap


class Stack(nn.Module):
    """Embeds its input and runs the vectors through the layers.

    causal          each position sees itself and what came before
    position_bias   computed once per call, handed to the attention of every layer as `bias`: added to the scores (T5)
                    or a table of distances that each layer projects itself (DeBERTa)
    final_dropout   after the final norm (T5)
    layer_dropout   in training, how often a whole layer is left out (BART's layerdrop)
    blank_padding   positions that a 2-D mask hides are zeros after the "embedding" (DeBERTa), or after the
                    embedding and all "layers" (XLM)

    Set by who trains:
    gradient_checkpointing   of each layer only the input is kept, and backward computes it again: less memory
    """

    gradient_checkpointing = False

    def __init__(
        self,
        embed: Embedder,
        layers: Iterable[Block],
        final_norm: nn.Module | None = None,
        *,
        causal: bool,
        position_bias: nn.Module | None = None,
        final_dropout: float = 0.0,
        layer_dropout: float = 0.0,
        blank_padding: Literal["embedding", "layers"] | None = None,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm
        self.causal = causal
        self.position_bias = position_bias
        self.final_dropout, self.blank_padding = final_dropout, blank_padding
        self.layer_dropout = layer_dropout

    @property
    def blocks(self) -> list[Block]:
        """The layers, as what they are (torch knows them as modules)."""
        return list(self.layers)  # type: ignore[arg-type]

    @property
    def token_embedder(self) -> TokenEmbedder:
        """The embedder of a stack that reads tokens."""
        if not self.embed.reads_tokens:
            raise InputError(f"This stack reads no tokens: its embedder is a {type(self.embed).__name__}.")
        return self.embed  # type: ignore[return-value]

    @property
    def taps(self) -> tuple[str, ...]:
        return ("final.norm",) if self.final_norm is not None else ()

    @property
    def last_tap(self) -> str:
        """Its tensor that a head reads."""
        return "final.norm" if self.final_norm is not None else f"layers.{len(self.layers) - 1}.output"

    def forward(
        self,
        input_ids: Tensor | None = None,  # (batch, time)
        *,
        attention_mask: Tensor | None = None,  # over cached and new positions
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,  # (batch, time, width)
        memory: Tensor | None = None,  # an encoder's output, (batch, source, width)
        memory_mask: Tensor | None = None,
        cache: KVCache | None = None,
        langs: Tensor | None = None,  # (batch, time), where the embedding knows languages
        neighbors: NeighborReading | None = None,
    ) -> Tensor:
        """Token ids, or their vectors, through the embedder and the layers."""
        batch, time, device = shape_of(input_ids, inputs_embeds)
        past = cache.length if cache is not None else 0
        if position_ids is None:
            position_ids = self.token_embedder.default_positions(input_ids, past, time, device)
        elif not isinstance(position_ids, Tensor):
            raise InputError(f"position_ids must be a tensor, not {type(position_ids).__name__}.")
        elif position_ids.shape[-1] != time or position_ids.ndim != 2 or position_ids.shape[0] not in (1, batch):
            raise InputError(
                f"position_ids must have shape ({batch} or 1, {time}) like the input, not {tuple(position_ids.shape)}."
            )
        if token_type_ids is not None and not isinstance(token_type_ids, Tensor):
            raise InputError(f"token_type_ids must be a tensor, not {type(token_type_ids).__name__}.")
        if token_type_ids is not None and token_type_ids.shape not in ((batch, time), (1, time)):
            raise InputError(
                f"token_type_ids must have the shape ({batch}, {time}), not {tuple(token_type_ids.shape)}."
            )
        if langs is not None and langs.shape not in ((batch, time), (1, time)):
            raise InputError(f"langs must have the shape ({batch}, {time}), not {tuple(langs.shape)}.")
        return self.run(
            self.embed(input_ids, position_ids, token_type_ids, inputs_embeds, langs),
            attention_mask=attention_mask,
            position_ids=position_ids,
            memory=memory,
            memory_mask=memory_mask,
            cache=cache,
            neighbors=neighbors,
        )

    def run(
        self,
        x: Tensor,  # (batch, time, width)
        *,
        attention_mask: Tensor | None = None,  # over cached and new positions
        position_ids: Tensor | None = None,  # for positions that act inside attention
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: KVCache | None = None,
        neighbors: NeighborReading | None = None,  # for layers with chunked attention
    ) -> Tensor:
        """Vectors through the layers and the final norm."""
        x = narrowed(x)
        batch, time, device = x.shape[0], x.shape[1], x.device
        if cache is not None and len(cache.layers) != len(self.layers):
            raise InputError(f"The cache has {len(cache.layers)} layers; this model has {len(self.layers)}.")
        past = cache.length if cache is not None else 0
        visible = from_attention_mask(attention_mask, batch, time, past + time, self.blocks[0].attention.heads)
        # A 4-D mask says everything itself, as transformers users expect; any other only hides more.
        complete = attention_mask is not None and attention_mask.ndim == 4
        allowed = visible if complete else Mask(causal=self.causal) & visible
        # A layer with a window may hold fewer positions than there were; layers of one window hold the same.
        past_lengths = {
            layer.window: cache.layers[n].held if cache is not None else 0 for n, layer in enumerate(self.blocks)
        }
        sees_itself = isinstance(cache, StaticKVCache) and time == 1  # a new position does
        bound = {}
        for window, past_length in past_lengths.items():
            keys = past_length + time
            mask = allowed if keys == past + time else allowed.of_last(keys)
            windowed = mask if complete else mask.within(window)
            bound[window] = windowed.bind(time, keys, device, batch=batch, none_fully_masked=sees_itself)
        source = memory.shape[1] if memory is not None else None
        bound_memory = None
        if memory_mask is not None:
            length = source if source is not None else memory_mask.shape[-1]
            rows = memory.shape[0] if memory is not None else memory_mask.shape[0]  # copies of a text share a memory
            bound_memory = from_attention_mask(memory_mask, rows, time, length, name="encoder_attention_mask").bind(
                time, length, device
            )
        bias = None if self.position_bias is None else self.position_bias(time, past + time)
        not_padding = None  # (batch, time, 1): 1 for real positions, 0 for padding
        if self.blank_padding and attention_mask is not None and attention_mask.ndim == 2:
            not_padding = attention_mask[:, -time:, None].to(x.dtype)
            x = x * not_padding

        stepped = None
        if cache is not None and cpu_kernels.loaded is not None and bias is None and not_padding is None:
            stepped = self._step(cpu_kernels.loaded, x, bound, cache)
        if stepped is not None:
            x = stepped
        else:
            drops = self.layer_dropout if self.training and cache is None else 0.0
            for n, layer in enumerate(self.blocks):
                if drops and float(torch.rand(())) < drops:
                    continue
                x = self.through(
                    layer,
                    x,
                    bound[layer.window],
                    memory=memory,
                    memory_mask=bound_memory,
                    cache=cache.layers[n] if cache is not None else None,
                    position_ids=position_ids,
                    bias=bias,
                    **({"neighbors": neighbors} if layer.reads_neighbors else {}),
                )
                x = x * not_padding if not_padding is not None and self.blank_padding == "layers" else x
        if self.final_norm is not None:
            x = tap(self, "final.norm", self.final_norm(x))
        return F.dropout(x, self.final_dropout, self.training)

    def through(self, layer: nn.Module, *args: Any, **options: Any) -> Any:
        """What a layer makes of its input. Neighbours, encoded once for later layers too, are not encoded again."""
        plain = options.get("cache") is None and options.get("neighbors") is None and not is_tracing()
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled() and plain:
            return checkpoint(layer, *args, use_reentrant=False, **options)  # dropout draws the same again
        return layer(*args, **options)

    def _step(
        self, kernels: cpu_kernels.Kernels, x: Tensor, bound: dict[int | None, BoundMask], cache: KVCache
    ) -> Tensor | None:
        """All layers in one call, for one new position and where nobody looks inside; None: run them one by one."""
        blocks = self.blocks
        if torch.compiler.is_compiling() or any(type(block) is not Block for block in blocks):
            return None
        return decode_step(kernels, self, blocks, x, bound.values(), cache.layers)


def narrowed(x: Tensor) -> Tensor:
    """What runs from layer to layer, in autocast's type where that is on: half the numbers to move to and fro.

    Autocast itself would leave it as wide as the embedding table, and every sum with it.
    """
    device_type = x.device.type
    on = not x.is_meta and torch.is_autocast_enabled(device_type)
    return x.to(torch.get_autocast_dtype(device_type)) if on else x


def shape_of(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> tuple[int, int, torch.device]:
    if (input_ids is None) == (inputs_embeds is None):
        raise InputError("Give the model either input_ids or inputs_embeds, and not both.")
    inputs, name, ndim = (input_ids, "input_ids", 2) if input_ids is not None else (inputs_embeds, "inputs_embeds", 3)
    if not isinstance(inputs, Tensor):
        raise InputError(f"{name} must be a tensor, not {type(inputs).__name__}; torch.tensor([...]) makes one.")
    if inputs.ndim != ndim:
        form = "(batch, time)" if ndim == 2 else "(batch, time, width)"
        raise InputError(f"{name} must have the shape {form}, not {tuple(inputs.shape)}.")
    if inputs.shape[1] == 0:
        raise InputError("The input is empty: there is no token to run. Give at least one.")
    return inputs.shape[0], inputs.shape[1], inputs.device
