"""Triton kernels of decoding: a row times a matrix (gemv) with what surrounds it, and attention over a KV cache.

A step for one text is bound by reading weights, so memory must never rest. Kernels are launched one behind the other
with programmatic dependent launch (`DEPENDENT`, Hopper and later): a kernel starts while the one before still runs,
reads its weights, which nobody writes, then waits until the one before has ended, and only then touches what others
write. As each waits for the one before it, everything earlier has ended too.

Import this where there is a Triton.
"""
# mypy: ignore-errors

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """The activations of `nn.activations`, in fp32."""
    if ACTIVATION == "gelu_new":
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))  # 2·√(2/π); (1 + tanh(u)) / 2 = σ(2u)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "relu":
        x = tl.maximum(x, 0.0)
    elif ACTIVATION == "silu":
        x = x * tl.sigmoid(x)
    return x


@triton.jit
def gemv(
    x,  # (IN,)
    weight,  # (out, IN), contiguous
    bias,  # (out,)
    norm_weight,  # (IN,)
    norm_bias,  # (IN,)
    residual,  # (out,); may be y itself
    y,  # (out,)
    out_features,
    eps,
    IN: tl.constexpr,
    WIDTH: tl.constexpr,  # inputs read at once, a power of two; all of them where there is a norm
    ROWS: tl.constexpr,  # outputs of a program
    NORM: tl.constexpr,
    HAS_NORM_WEIGHT: tl.constexpr,
    HAS_NORM_BIAS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """y = residual + activate(weight · norm(x) + bias), summed in fp32 and rounded once."""
    o = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    i = tl.arange(0, WIDTH)[None, :]
    is_output, is_input = o < out_features, i < IN
    rows = weight + o.to(tl.int64) * IN
    tile = tl.load(rows + i, mask=is_output & is_input, other=0.0)
    if HAS_BIAS:
        b = tl.load(bias + o, mask=is_output, other=0.0).to(tl.float32)
    if HAS_NORM_WEIGHT:
        scale = tl.load(norm_weight + i, mask=is_input, other=0.0)
    if HAS_NORM_BIAS:
        shift = tl.load(norm_bias + i, mask=is_input, other=0.0)
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()

    row = tl.load(x + i, mask=is_input, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        r = tl.load(residual + o, mask=is_output, other=0.0).to(tl.float32)
    if NORM:
        centred = tl.where(is_input, row - tl.sum(row, axis=1, keep_dims=True) / IN, 0.0)
        row = centred * tl.rsqrt(tl.sum(centred * centred, axis=1, keep_dims=True) / IN + eps)
        if HAS_NORM_WEIGHT:
            row = row * scale.to(tl.float32)
        if HAS_NORM_BIAS:
            row = row + shift.to(tl.float32)
        row = row.to(x.dtype.element_ty).to(tl.float32)
    total = tile.to(tl.float32) * row
    for begin in range(WIDTH, IN, WIDTH):
        j = begin + i
        row = tl.load(x + j, mask=j < IN, other=0.0).to(tl.float32)
        tile = tl.load(rows + j, mask=is_output & (j < IN), other=0.0)
        total += tile.to(tl.float32) * row
    out = tl.sum(total, axis=1, keep_dims=True)
    if HAS_BIAS:
        out += b
    out = activate(out, ACTIVATION)
    if HAS_RESIDUAL:
        out += r
    tl.store(y + o, out.to(x.dtype.element_ty).to(y.dtype.element_ty), mask=is_output)


@triton.jit
def online_softmax(q, k, v, visible, highest, total, heads):
    """Take more keys into a softmax.

    highest: the largest score so far; total, heads: the sums of exp(score - highest), and of values weighted by it.
    """
    scores = tl.where(visible, tl.sum(k.to(tl.float32) * q[None, :], axis=1), float("-inf"))
    higher = tl.maximum(highest, tl.max(scores))
    weights = tl.exp(scores - higher)
    rescale = tl.exp(highest - higher)
    heads = heads * rescale + tl.sum(v.to(tl.float32) * weights[:, None], axis=0)
    return higher, total * rescale + tl.sum(weights), heads


@triton.jit
def decode_attention(
    qkv,  # (heads · DIM + 2 · kv_heads · DIM,): the new position's
    keys,  # (kv_heads, capacity, DIM)
    values,
    visible,  # (capacity,) bool
    position,  # (1,): where the new position is written; what is before it may be seen
    y,  # (heads · DIM,)
    capacity,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads for each key/value head
    DIM: tl.constexpr,
    KEYS: tl.constexpr,  # keys read at once
    DEPENDENT: tl.constexpr,
):
    """One head of the new position over all positions so far; keeps its key and value. Softmax on the way, in fp32."""
    head = tl.program_id(0)
    kv_head = head // GROUP
    d = tl.arange(0, DIM)
    now = tl.load(position).to(tl.int32)
    keys += kv_head.to(tl.int64) * capacity * DIM
    values += kv_head.to(tl.int64) * capacity * DIM
    j = tl.arange(0, KEYS)
    offsets = j[:, None] * DIM + d[None, :]
    k = tl.load(keys + offsets, mask=(j < now)[:, None], other=0.0)  # written by earlier steps
    v = tl.load(values + offsets, mask=(j < now)[:, None], other=0.0)
    seen = tl.load(visible + j, mask=j < now, other=0).to(tl.int1)
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()

    q = tl.load(qkv + head * DIM + d).to(tl.float32) * scale
    new_k = tl.load(qkv + (HEADS + kv_head) * DIM + d)
    new_v = tl.load(qkv + (HEADS + HEADS // GROUP + kv_head) * DIM + d)
    if head % GROUP == 0:
        tl.store(keys + now * DIM + d, new_k)
        tl.store(values + now * DIM + d, new_v)
    highest = tl.sum(q * new_k.to(tl.float32))  # it sees itself
    total = highest * 0.0 + 1.0
    heads = new_v.to(tl.float32)
    highest, total, heads = online_softmax(q, k, v, seen, highest, total, heads)
    for begin in range(KEYS, now, KEYS):
        j = begin + tl.arange(0, KEYS)
        offsets = j[:, None] * DIM + d[None, :]
        k = tl.load(keys + offsets, mask=(j < now)[:, None], other=0.0)
        v = tl.load(values + offsets, mask=(j < now)[:, None], other=0.0)
        seen = tl.load(visible + j, mask=j < now, other=0).to(tl.int1)
        highest, total, heads = online_softmax(q, k, v, seen, highest, total, heads)
    tl.store(y + head * DIM + d, (heads / total).to(y.dtype.element_ty))
