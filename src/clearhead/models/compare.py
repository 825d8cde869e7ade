"""What a family is made of, read off an assembled model, so that two families can be laid side by side."""

from __future__ import annotations

from typing import Any

from torch import nn

from clearhead.models import families, family
from clearhead.models.clip import ClipModel
from clearhead.models.encoder_decoder import EncoderDecoderModel
from clearhead.models.family import Family
from clearhead.models.model import Model
from clearhead.models.retrieval import RetrievalModel
from clearhead.nn import (
    Attention,
    Block,
    FeedForward,
    LearnedPositions,
    RelativeKeys,
    SinusoidalPositions,
    Stack,
    TokenEmbedder,
)
from clearhead.nn.bidirectional_stack import BidirectionalStack
from clearhead.nn.character_cnn import CharacterCNN
from clearhead.nn.embedding import Embedder
from clearhead.nn.neighbor_encoder import NeighborEncoder
from clearhead.nn.patches import PatchEmbedder
from clearhead.nn.positions import RelativeBuckets, RelativeSinusoids
from clearhead.nn.recurrent_decoder import RecurrentDecoder
from clearhead.nn.recurrent_stack import RecurrentStack
from clearhead.nn.segment_recurrence import SegmentRecurrentStack

Features = dict[str, str]


def features(fam: Family) -> Features:
    """The parts of the family's first preset, in words. Nothing is allocated."""
    config = fam.preset(next(iter(fam.presets))) if fam.presets else fam.config()
    model = fam.make(config, device="meta")
    modules = dict(model.named_modules())
    stacks = {n: m for n, m in modules.items() if isinstance(m, Stack) and not isinstance(m, NeighborEncoder)}
    parts = {"shape": _shape(model, list(stacks.values()))}
    sides = {name: _stack_features(stack) for name, stack in stacks.items()}
    for part in dict.fromkeys(part for side in sides.values() for part in side):
        words = {name: side[part] for name, side in sides.items() if part in side}
        if len(set(words.values())) == 1:  # one stack, or two that agree, or something only one of them has
            parts[part] = next(iter(words.values()))
        else:
            parts[part] = "; ".join(f"{name}: {said}" for name, said in words.items())
    if isinstance(model, RetrievalModel):
        parts["retrieval"] = _retrieval(model)
    parts["output"] = _output(model)
    parts["heads for"] = ", ".join(fam.architectures)
    return parts


def differences(a: Family, b: Family) -> list[tuple[str, str, str]]:
    """(part, in a, in b) for every part that differs; a part that one lacks is "–"."""
    left, right = features(a), features(b)
    parts = list(dict.fromkeys([*left, *right]))
    return [(p, left.get(p, "–"), right.get(p, "–")) for p in parts if left.get(p) != right.get(p)]


def children(parent: str | None) -> list[Family]:
    return [fam for fam in families() if fam.parent == parent]


def lineage(name: str) -> list[str]:
    """From the root down to this family."""
    fam = family(name)
    return [*(lineage(fam.parent) if fam.parent else []), name]


def _shape(model: Model, stacks: list[Stack]) -> str:
    if isinstance(model, EncoderDecoderModel):
        return "encoder–decoder"
    if isinstance(model, ClipModel):
        return "two towers, compared: a causal one of texts, one of pictures"
    if isinstance(stacks[0], RecurrentStack):
        return "recurrent: one token after another"
    if isinstance(stacks[0], BidirectionalStack):
        return "recurrent: one word after another, from each end"
    if not len(stacks[0].layers):
        return "a table: each word for itself"
    return "decoder: each token sees what came before" if stacks[0].causal else "encoder: every token sees all"


def _stack_features(stack: Stack) -> Features:
    if isinstance(stack, BidirectionalStack):
        return {"embedding": _characters(stack.embed), "recurrence": _two_ways(stack)}
    if isinstance(stack, RecurrentStack):
        parts = {"embedding": _embedding(stack.embed), "recurrence": _recurrence(stack)}
        return parts | (_decoder_features(stack) if isinstance(stack, RecurrentDecoder) else {})
    blocks = stack.blocks
    if not blocks:
        return {"embedding": _embedding(stack.embed)}
    parts = {"embedding": _embedding(stack.embed), "positions": _positions(stack)}
    first = blocks[0]
    if isinstance(first, Block):
        parts["norm"] = f"{type(first.attention_norm).__name__}, {first.placement}"
        if stack.final_norm is not None:
            parts["norm"] += ", and one at the end"
    windows = {block.window for block in blocks}
    if windows != {None}:
        local = sorted(w for w in windows if w is not None)
        parts["sees"] = f"{'every other layer ' if None in windows else ''}only {local[0]} positions back"
    if len({id(p) for p in first.parameters()} & {id(p) for p in blocks[-1].parameters()}) and len(blocks) > 1:
        parts["layers"] = "share their weights"
    if isinstance(stack, SegmentRecurrentStack):
        parts["memory"] = f"{'all' if stack.mem_len is None else stack.mem_len} states of earlier text"
    parts["attention"] = _attention(first.attention)
    if first.cross_attention is not None:
        parts["cross-attention"] = "the decoder looks at the encoder"
    parts["feed-forward"] = _feedforward(first.feedforward)
    return parts


def _retrieval(model: RetrievalModel) -> str:
    numbers = [str(n) for n, block in enumerate(model.stack.blocks, start=1) if block.reads_neighbors]
    encoder = f"an encoder of {len(model.neighbor_encoder.layers)} layers"
    return f"layers {', '.join(numbers)} look at neighbours of every {model.chunk_size} tokens, through {encoder}"


def _recurrence(stack: RecurrentStack) -> str:
    layers = stack.recurrent_layers
    directions = ", in both directions" if layers[0].rnn.bidirectional else ""
    widths = list(dict.fromkeys(layer.rnn.hidden_size for layer in layers))
    each = f"{len(layers)} × " if len(layers) > 1 else ""
    return f"{each}{type(layers[0].rnn).__name__}, {', '.join(map(str, widths))} wide{directions}"


def _decoder_features(stack: RecurrentDecoder) -> Features:
    parts = {"attention": "none: the decoder knows the encoder's last state"}
    if stack.attention is not None:
        when = "before" if stack.looks_before else "after"
        parts["attention"] = f"{stack.attention.score}, of the encoder's states by the decoder's {when} each step"
        if stack.attention.window is not None:
            parts["sees"] = f"only {stack.attention.window} positions around a place it predicts"
    fed = {"the last output": stack.input_feeding, "the encoder's last state": stack.feed_context}
    if any(fed.values()):
        parts["fed to each step"] = " and ".join(name for name, is_fed in fed.items() if is_fed)
    return parts


def _two_ways(stack: BidirectionalStack) -> str:
    layer: Any = stack.layers[-1]
    lstm, skips = layer.forwards, ", skip connections" if layer.residual else ""
    clipped = "" if lstm.cell_clip is None else f", clipped at {lstm.cell_clip:g}"
    return f"2 × {len(stack.layers)} LSTM, {lstm.hidden_size} wide, projected to {lstm.width}{clipped}{skips}"


def _characters(embed: Embedder) -> str:
    if not isinstance(embed, CharacterCNN):
        return type(embed).__name__
    return f"characters of a word, {embed.count:,} filters, {len(embed.highways)} highways"


def _embedding(embed: Embedder) -> str:
    if isinstance(embed, PatchEmbedder):
        return f"patches of {embed.patch_size} × {embed.patch_size} pixels and a class vector, norm"
    assert isinstance(embed, TokenEmbedder)
    parts = ["tokens"]
    if embed.scale != 1.0:
        parts[0] = "tokens × √width"
    if embed.segments is not None:
        parts.append("segments")
    if embed.norm is not None:
        parts.append("norm")
    if embed.project is not None:
        parts.append("projected to the layers' width")
    return ", ".join(parts)


def _positions(stack: Stack) -> str:
    parts = []
    positions: Any = stack.embed.positions
    if isinstance(positions, LearnedPositions):
        counted = ", counted from the padding id" if getattr(stack.embed, "padding_position", None) is not None else ""
        parts.append(
            f"learned, {positions.length:,}" + (f", offset {positions.offset}" * bool(positions.offset)) + counted
        )
    elif isinstance(positions, SinusoidalPositions):
        parts.append(f"sinusoidal, {positions.layout}")
    elif positions is not None:
        parts.append(type(positions).__name__)
    if isinstance(stack.position_bias, RelativeBuckets):
        parts.append("relative buckets")
    elif stack.position_bias is not None:
        parts.append("a table of distances, projected by every layer")
    attention = stack.blocks[0].attention
    if getattr(attention, "rotary", None) is not None:
        parts.append(f"rotary, {attention.rotary.pairing}")  # type: ignore[union-attr]
    if isinstance(stack, SegmentRecurrentStack):
        parts.append("sinusoids of the distance, in every layer")
    relative = getattr(attention, "relative", None)
    if isinstance(relative, RelativeSinusoids):
        parts.append("sinusoids of the distance, in every layer")
    elif relative is not None:
        parts.append("relative keys" if isinstance(relative, RelativeKeys) else "relative buckets, a table per layer")
    return " and ".join(parts) or "none"


def _attention(attention: nn.Module) -> str:
    if not isinstance(attention, Attention):
        return f"its own: {type(attention).__name__}"
    first = attention.qkv if attention.fused else attention.query
    words = ["q, k, v in one matrix" if attention.fused else "q, k, v apart"]
    words.append("with biases" if first.bias is not None else "without biases")
    usual = attention.head_dim**-0.5
    words.append("scores / √d" if abs(attention.scale - usual) < 1e-9 else f"scores × {attention.scale:.3g}")
    if attention.kv_heads != attention.heads:
        words.append(f"{attention.heads // attention.kv_heads} heads share a key")
    if type(attention) is not Attention:
        words.append(f"mixed by {type(attention).__name__}")
    return ", ".join(words)


def _feedforward(feedforward: nn.Module) -> str:
    if not isinstance(feedforward, FeedForward):
        return f"its own: {type(feedforward).__name__}"
    wider = feedforward.up.out_features / feedforward.up.in_features
    gated = "gated " if feedforward.gate is not None else ""
    biases = "" if feedforward.up.bias is not None else ", without biases"
    return f"{gated}{feedforward.activation.name}, {wider:.3g} × wide{biases}"


def _output(model: Model) -> str:
    head = model.language_head
    if head is None:
        return type(model.head).__name__
    words = ["the embedding matrix" if model.config.tie_word_embeddings else "a matrix of its own"]
    if getattr(head.output, "bias", None) is not None:
        words.append("a bias")
    if head.transform is not None:
        words.append("a transform before it")
    if head.scale != 1.0:
        words.append("hidden states scaled down")
    return ", ".join(words)
