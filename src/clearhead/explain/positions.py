"""How a model knows where a token stands: its position schemes, read from the model's own modules.

Vectors that are added to the embeddings (sinusoids, learned tables), turns of queries and keys (rotary), and what is
added to scores or asked of them by distance (T5's buckets, relative keys, DeBERTa's and Transformer-XL's distances).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.capabilities import has_positions
from clearhead.explain.finding import Finding
from clearhead.explain.indices import checked_count, checked_index
from clearhead.explain.inference import eval_mode
from clearhead.explain.question import Question
from clearhead.explain.settings import LAYER, Setting
from clearhead.messages import say
from clearhead.nn.attention import Attention
from clearhead.nn.disentangled import DisentangledAttention
from clearhead.nn.positions import RelativeBuckets, RelativeKeys, Rotary, SinusoidalPositions
from clearhead.nn.segment_recurrence import SegmentRecurrentStack
from clearhead.nn.stack import Stack
from clearhead.pipeline import Pipeline

PositionEncoding = Literal["sinusoidal", "learned", "rotary", "distance-bias", "distance-vectors"]


@dataclass(frozen=True)
class PositionScheme:
    """One way in which a stack knows positions.

    side         "" for a model of one stack, else "encoder" or "decoder"
    encoding     "sinusoidal", "learned": a vector for each position, added to the token's
                 "rotary": what a vector of (1, 0), (1, 0) … is turned into at each position, pair by pair
                 "distance-bias": a number for each distance and head, added to the scores
                 "distance-vectors": a vector for each distance, which the scores ask for
    module       the module that it was read from
    rows         positions from 0, or distances (key - query), in order
    columns      "dimension" or "head"
    values       (rows, columns)
    similarity   (rows, rows): the cosine between the vectors of two positions; None where there are no vectors
    causal       the stack does not look ahead: distances above 0 do not occur
    """

    side: str
    encoding: PositionEncoding
    module: str
    rows: list[int]
    columns: Literal["dimension", "head"]
    values: np.ndarray
    similarity: np.ndarray | None
    causal: bool


@dataclass(frozen=True, repr=False, eq=False)
class Positions(Finding):
    """The finding. `layer` is where schemes that each layer has for itself were read."""

    kind: ClassVar[str] = "positions"

    model: str
    layer: int
    schemes: list[PositionScheme]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["side", "encoding", "module", "position", "column", "value"]
        for scheme in self.schemes:
            for r, k in np.ndindex(scheme.values.shape):
                yield [scheme.side, scheme.encoding, scheme.module, scheme.rows[r], k, float(scheme.values[r, k])]


def positions(pipe: Pipeline, length: int = 64, layer: int = 0) -> Positions:
    """Every position scheme of a model, for texts of up to `length` tokens.

    layer   where each layer has numbers of its own (UMT5, BERT's relative keys): which one is read
    """
    checked_count("length", length, least=2)
    if (reason := has_positions(pipe)) is not None:
        raise InputError(reason)
    model = pipe.model
    schemes: list[PositionScheme] = []
    with eval_mode(model):
        for side, stack in model.stacks.items():
            count = len(stack.layers)
            at = checked_index("layer", layer, count, say(f"explain.{side or 'model'}_has_layers", count=count))
            schemes += _schemes(side, stack, min(length, stack.embed.max_length or length), at)
    if not schemes:
        raise InputError(say("explain.no_position_scheme"))
    return Positions(pipe.name, layer, schemes)


def _schemes(side: str, stack: Stack, length: int, layer: int) -> Iterator[PositionScheme]:
    path = f"{side}." if side else ""
    embed: Any = stack.embed
    device = next(stack.parameters()).device
    attention: Any = getattr(stack.layers[layer], "attention", None)

    def scheme(
        encoding: PositionEncoding, module: str, rows: list[int], values: Tensor, columns: Any = "dimension"
    ) -> PositionScheme:
        numbers = values.float()
        alike = None
        if columns == "dimension":
            unit = torch.nn.functional.normalize(numbers, dim=-1)
            alike = (unit @ unit.t()).cpu().numpy()
        return PositionScheme(side, encoding, path + module, rows, columns, numbers.cpu().numpy(), alike, stack.causal)

    near = list(range(length))
    apart = list(range(1 - length, length))  # key - query
    if getattr(embed, "positions", None) is not None:
        ids = torch.arange(length, device=device)[None] + embed.first_position
        vectors = embed.positions(ids)[0]
        encoding: PositionEncoding = "sinusoidal" if isinstance(embed.positions, SinusoidalPositions) else "learned"
        yield scheme(encoding, "embed.positions", near, vectors)
    if isinstance(stack.position_bias, RelativeBuckets):
        yield scheme("distance-bias", "position_bias", apart, _by_distance(stack.position_bias, length), "head")
    if isinstance(stack, SegmentRecurrentStack):
        like = torch.zeros((), device=device)
        waves = stack.distances(2 if stack.bi_data else 1, length, length, like)[0]  # the farthest back first
        yield scheme("distance-vectors", "layers.*.attention", apart, waves)
    if isinstance(attention, DisentangledAttention) and stack.position_bias is not None and attention.terms:
        table = stack.position_bias(length, length)[attention.rows(length, length, device)]  # query - key, falling
        yield scheme("distance-vectors", "position_bias", apart, table)
    if isinstance(attention, Attention):
        module = f"layers.{layer}.attention"
        if attention.rotary is not None:
            yield scheme("rotary", f"{module}.rotary", near, _rotated(attention.rotary, length, device))
        buckets = getattr(attention.relative, "buckets", None)
        if isinstance(buckets, RelativeBuckets):
            yield scheme("distance-bias", f"{module}.relative", apart, _by_distance(buckets, length), "head")
        if isinstance(attention.relative, RelativeKeys):
            most = attention.relative.max_distance
            rows = torch.tensor([-d for d in apart], device=device).clamp(-most, most) + most  # it counts query - key
            yield scheme("distance-vectors", f"{module}.relative", apart, attention.relative.table(rows))


def _by_distance(buckets: RelativeBuckets, length: int) -> Tensor:
    """(2 · length - 1, heads): the number that is added for each distance, key - query, the farthest back first."""
    square = buckets(length, length)[0]  # (heads, query, key)
    return torch.cat((square[:, -1, :], square[:, 0, 1:]), -1).t()


def _rotated(rotary: Rotary, length: int, device: torch.device) -> Tensor:
    """(length, rotated): the pair (1, 0) of every pair of dimensions, as the module turns it at each position."""
    size = rotary.rotated
    start = torch.zeros(size, device=device)
    start[slice(0, None, 2) if rotary.pairing == "neighbours" else slice(0, size // 2)] = 1.0
    ids = torch.arange(length, device=device)[None]
    rotated: Tensor = rotary(start.expand(1, 1, length, size), ids)[0, 0]
    return rotated


# ---- as a question


def _answer(pipe: Pipeline, text: str, second: None, length: int, layer: int) -> Positions:
    return positions(pipe, length, layer)


QUESTION = Question(
    name="positions", kind="positions", group="model", answer=_answer, checks=(has_positions,), text=False,
    params=(
        Setting(name="length", key="positions.length", type=int, default=64, least=2, most=2048),
        replace(LAYER, key="positions.layer"),
    ),
)  # fmt: skip
