"""Blocks: tensors in, tensors out. They know no family.

The second half of the names are drop-ins for the classes of the same name in `torch.nn`.
"""

from clearhead.nn.activations import ACTIVATIONS, Activation
from clearhead.nn.attention import Attention, attend
from clearhead.nn.block import Block
from clearhead.nn.cache import Cache, LayerCache
from clearhead.nn.embedding import Embed
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.masks import BoundMask, Mask
from clearhead.nn.norms import LayerNorm, RMSNorm
from clearhead.nn.positions import (
    LearnedPositions,
    RelativeBuckets,
    RelativeKeys,
    Rotary,
    SinusoidalPositions,
    sinusoidal,
)
from clearhead.nn.stack import Stack
from clearhead.nn.torch_dropin import (
    MultiheadAttention,
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from clearhead.nn.tracing import Trace, tap, tap_points, trace

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Attention",
    "Block",
    "BoundMask",
    "Cache",
    "Embed",
    "FeedForward",
    "LayerCache",
    "LayerNorm",
    "LearnedPositions",
    "Mask",
    "MultiheadAttention",
    "RMSNorm",
    "RelativeBuckets",
    "RelativeKeys",
    "Rotary",
    "SinusoidalPositions",
    "Stack",
    "Trace",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "attend",
    "sinusoidal",
    "tap",
    "tap_points",
    "trace",
]
