"""Blocks: tensors in, tensors out. They know no family.

The second half of the names are drop-ins for the classes of the same name in `torch.nn`.
"""

from clearhead.nn.activations import ACTIVATIONS, Activation
from clearhead.nn.attention import Attention, attend
from clearhead.nn.block import Block
from clearhead.nn.embedding import TokenEmbedder
from clearhead.nn.feedforward import FeedForward
from clearhead.nn.kv_cache import KVCache, LayerKVCache
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
from clearhead.nn.recurrent import GRU, LSTM, RNN
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
    "GRU",
    "LSTM",
    "RNN",
    "Activation",
    "Attention",
    "Block",
    "BoundMask",
    "FeedForward",
    "KVCache",
    "LayerKVCache",
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
    "TokenEmbedder",
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
