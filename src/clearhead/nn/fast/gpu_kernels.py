"""Triton kernels for one new position: a row times a matrix with what surrounds it, and attention over a cache.

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
def bend(x, ACTIVATION: tl.constexpr):
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
def product(
    x,  # (INS,)
    weight,  # (outs, INS), its rows in a piece
    bias,  # (outs,)
    gain,  # (INS,) and
    shift,  # (INS,): the norm's
    residual,  # (outs,); may be y itself
    y,  # (outs,)
    outs,
    eps,
    INS: tl.constexpr,
    WIDTH: tl.constexpr,  # inputs read at once, a power of two; all of them where there is a norm
    ROWS: tl.constexpr,  # outputs of a program
    NORM: tl.constexpr,
    GAIN: tl.constexpr,
    SHIFT: tl.constexpr,
    BIAS: tl.constexpr,
    ADD: tl.constexpr,
    ACTIVATION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """y = residual + bend(weight · norm(x) + bias), summed in fp32 and rounded once."""
    o = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    i = tl.arange(0, WIDTH)[None, :]
    real, inside = o < outs, i < INS
    rows = weight + o.to(tl.int64) * INS
    tile = tl.load(rows + i, mask=real & inside, other=0.0)
    if BIAS:
        start = tl.load(bias + o, mask=real, other=0.0).to(tl.float32)
    if GAIN:
        gained = tl.load(gain + i, mask=inside, other=0.0)
    if SHIFT:
        shifted = tl.load(shift + i, mask=inside, other=0.0)
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()

    given = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        added = tl.load(residual + o, mask=real, other=0.0).to(tl.float32)
    if NORM:
        away = tl.where(inside, given - tl.sum(given, axis=1, keep_dims=True) / INS, 0.0)
        given = away * tl.rsqrt(tl.sum(away * away, axis=1, keep_dims=True) / INS + eps)
        if GAIN:
            given = given * gained.to(tl.float32)
        if SHIFT:
            given = given + shifted.to(tl.float32)
        given = given.to(x.dtype.element_ty).to(tl.float32)
    total = tile.to(tl.float32) * given
    for begin in range(WIDTH, INS, WIDTH):
        j = begin + i
        given = tl.load(x + j, mask=j < INS, other=0.0).to(tl.float32)
        tile = tl.load(rows + j, mask=real & (j < INS), other=0.0)
        total += tile.to(tl.float32) * given
    out = tl.sum(total, axis=1, keep_dims=True)
    if BIAS:
        out += start
    out = bend(out, ACTIVATION)
    if ADD:
        out += added
    tl.store(y + o, out.to(x.dtype.element_ty).to(y.dtype.element_ty), mask=real)


@triton.jit
def look(q, k, v, seen, top, whole, mixed):
    """Take more keys into a softmax: the largest score so far, and the sums of shares and of values relative to it."""
    scores = tl.where(seen, tl.sum(k.to(tl.float32) * q[None, :], axis=1), float("-inf"))
    higher = tl.maximum(top, tl.max(scores))
    share = tl.exp(scores - higher)
    fade = tl.exp(top - higher)
    mixed = mixed * fade + tl.sum(v.to(tl.float32) * share[:, None], axis=0)
    return higher, whole * fade + tl.sum(share), mixed


@triton.jit
def attention(
    qkv,  # (heads · DIM + 2 · kv_heads · DIM,): the new position's
    keys,  # (kv_heads, span, DIM)
    values,
    visible,  # (span,) bool
    position,  # (1,): where the new position is written; what is before it may be seen
    y,  # (heads · DIM,)
    span,
    scale,
    HEADS: tl.constexpr,
    SHARED: tl.constexpr,  # query heads for each key/value head
    DIM: tl.constexpr,
    KEYS: tl.constexpr,  # keys looked at at once
    DEPENDENT: tl.constexpr,
):
    """One head of the new position over all positions so far; keeps its key and value. Softmax on the way, in fp32."""
    head = tl.program_id(0)
    own = head // SHARED
    d = tl.arange(0, DIM)
    now = tl.load(position).to(tl.int32)
    keys += own.to(tl.int64) * span * DIM
    values += own.to(tl.int64) * span * DIM
    j = tl.arange(0, KEYS)
    places = j[:, None] * DIM + d[None, :]
    k = tl.load(keys + places, mask=(j < now)[:, None], other=0.0)  # written by earlier steps
    v = tl.load(values + places, mask=(j < now)[:, None], other=0.0)
    seen = tl.load(visible + j, mask=j < now, other=0).to(tl.int1)
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()

    q = tl.load(qkv + head * DIM + d).to(tl.float32) * scale
    new_k = tl.load(qkv + (HEADS + own) * DIM + d)
    new_v = tl.load(qkv + (HEADS + HEADS // SHARED + own) * DIM + d)
    if head % SHARED == 0:
        tl.store(keys + now * DIM + d, new_k)
        tl.store(values + now * DIM + d, new_v)
    top = tl.sum(q * new_k.to(tl.float32))  # it sees itself
    whole = top * 0.0 + 1.0
    mixed = new_v.to(tl.float32)
    top, whole, mixed = look(q, k, v, seen, top, whole, mixed)
    for begin in range(KEYS, now, KEYS):
        j = begin + tl.arange(0, KEYS)
        places = j[:, None] * DIM + d[None, :]
        k = tl.load(keys + places, mask=(j < now)[:, None], other=0.0)
        v = tl.load(values + places, mask=(j < now)[:, None], other=0.0)
        seen = tl.load(visible + j, mask=j < now, other=0).to(tl.int1)
        top, whole, mixed = look(q, k, v, seen, top, whole, mixed)
    tl.store(y + head * DIM + d, (mixed / whole).to(y.dtype.element_ty))
