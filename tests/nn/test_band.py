"""The blocked sliding window against the dense mask: the same numbers, without the square."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from clearhead.nn import (
    Attention,
    Block,
    FeedForward,
    KVCache,
    LayerNorm,
    RelativeBuckets,
    Rotary,
    Stack,
    TokenEmbedder,
    trace,
)
from clearhead.nn.attention import attend
from clearhead.nn.masks import Mask


def reference(query, key, value, seen, scale):
    """Attention by the book: a loop over texts, heads and queries; `seen` (batch, query, key) bool."""
    out = torch.zeros(*query.shape[:3], value.shape[-1], dtype=query.dtype)
    shared = query.shape[1] // key.shape[1]
    for b in range(query.shape[0]):
        for h in range(query.shape[1]):
            for i in range(query.shape[2]):
                js = seen[b, i].nonzero().flatten()
                if len(js):
                    weights = torch.softmax(key[b, h // shared, js] @ query[b, h, i] * scale, 0)
                    out[b, h, i] = weights @ value[b, h // shared, js]
    return out


@pytest.mark.parametrize("seed", range(40))
def test_blocks_give_the_numbers_of_the_dense_mask(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    causal, window = rng.random() < 0.5, rng.choice([1, 2, 3, 4, 7])
    query = 2 * window + rng.randint(1, 13)
    key = query + rng.choice([0, 0, 1, window, 2 * window + 3])
    batch, kv_heads, shared = rng.choice([1, 2, 3]), rng.choice([1, 2]), rng.choice([1, 3])
    mask = Mask(causal, window)
    seen = torch.ones(batch, query, key, dtype=torch.bool)
    for b in range(batch):
        for i in range(query):
            for j in range(key):
                distance = i + key - query - j
                seen[b, i, j] = abs(distance) < window and (distance >= 0 or not causal)
    if rng.random() < 0.6:  # texts of different lengths, padded on either side, and holes: some queries see nothing
        shown = torch.rand(batch, key) < rng.choice([0.2, 0.7])
        mask = mask & Mask(visible=(shown[:, None, None],))
        seen = seen & shown[:, None]

    def tensors():
        torch.manual_seed(seed)
        shapes = [(batch, kv_heads * shared, query, 5), (batch, kv_heads, key, 5), (batch, kv_heads, key, 4)]
        return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    bound, dense = mask.bind(query, key, batch=batch), mask.bind(query, key)
    assert bound.band is not None and dense.band is None
    module, blocked, plain = nn.Module(), tensors(), tensors()
    got, want = attend(module, *blocked, bound, scale=0.7), attend(module, *plain, dense, scale=0.7)
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(got, reference(*plain, seen, 0.7), rtol=1e-9, atol=1e-9)
    pull = torch.randn_like(want)
    got.backward(pull)
    want.backward(pull)
    for a, b in zip(blocked, plain, strict=True):
        assert a.grad.isfinite().all()
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-9)
    a, b = bound.dense(), dense
    assert torch.equal(a.visible, b.visible) and torch.equal(a.fully_masked, b.fully_masked)


def stack(causal, window, *, layers=2, rotary=False, upcast=False, bias=False):
    def block(n):
        attention = Attention(12, 3, rotary=Rotary(4) if rotary else None, upcast=upcast)
        norms = {"attention_norm": LayerNorm(12), "feedforward_norm": LayerNorm(12)}
        return Block(attention, FeedForward(12, 20), **norms, window=window if n % 2 else None)

    torch.manual_seed(0)
    shared = RelativeBuckets(8, 3, 16) if bias else None
    blocks = [block(n) for n in range(layers)]
    return Stack(TokenEmbedder(nn.Embedding(30, 12)), blocks, LayerNorm(12), causal=causal, position_bias=shared).eval()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("options", [{}, {"rotary": True}, {"bias": True}], ids=str)
def test_a_stack_runs_the_same_with_and_without_blocks(causal, options, monkeypatch):
    model = stack(causal, 4, **options)
    ids = torch.randint(0, 30, (2, 23))
    hidden = torch.ones(2, 23, dtype=torch.long)
    hidden[0, :5], hidden[1, 17:] = 0, 0
    used = []
    fold = Mask.bind

    def bind(self, *args, batch=None, **more):
        bound = fold(self, *args, batch=batch if blocked else None, **more)
        used.append(bound.band is not None)
        return bound

    monkeypatch.setattr(Mask, "bind", bind)
    for mask in (None, hidden):
        blocked = True
        got = model(ids, attention_mask=mask)
        assert any(used)
        with trace(model, "**.weights") as seen:
            watched = model(ids, attention_mask=mask)
        assert seen["layers.1.attention.weights"].shape[-2:] == (23, 23)
        blocked = False
        used.clear()
        want = model(ids, attention_mask=mask)
        assert not any(used)
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(watched, want, rtol=1e-5, atol=1e-5)


def test_half_precision_with_fp32_scores_takes_the_blocks_too():
    model = stack(True, 4, upcast=True)
    ids = torch.randint(0, 30, (2, 23))
    want = model(ids)
    got = model.bfloat16()(ids)
    assert got.dtype == torch.bfloat16
    assert (got.float() - want).norm() / want.norm() < 0.05
    with trace(model, "**.weights"):
        torch.testing.assert_close(model(ids), got)


def test_long_pieces_after_a_cache():
    model = stack(True, 3)
    ids = torch.randint(0, 30, (2, 31))
    cache = KVCache(2)
    pieces = [model(ids[:, a:b], cache=cache) for a, b in ((0, 8), (8, 9), (9, 24), (24, 31))]
    torch.testing.assert_close(torch.cat(pieces, 1), model(ids), rtol=1e-5, atol=1e-5)


def test_other_masks_and_short_texts_stay_dense():
    window = Mask(causal=True, window=4)
    assert window.bind(8, 8, batch=1).band is None  # no longer than two windows
    assert window.bind(9, 9, batch=1).band is not None
    assert window.bind(1, 900, batch=1).band is None  # one new token after a cache: its row is all there is
    assert Mask(causal=True).bind(90, 90, batch=1).band is None
    square = torch.rand(1, 1, 90, 90) < 0.5
    assert (window & Mask(visible=(square,))).bind(90, 90, batch=1).band is None
    assert (window & Mask(added=(torch.zeros(1, 1, 1, 90),))).bind(90, 90, batch=1).band is None


def test_what_is_kept_grows_with_the_length_only():
    """The largest tensor that one layer makes, at two lengths."""

    def largest(time):
        sizes = []

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                out = func(*args, **(kwargs or {}))
                sizes.extend(
                    t.numel() for t in (out if isinstance(out, tuple | list) else [out]) if hasattr(t, "numel")
                )
                return out

        model = stack(True, 8, layers=1)
        model.blocks[0].window = 8
        with torch.no_grad(), Watch():
            model(torch.zeros(1, time, dtype=torch.long))
        return max(sizes)

    assert largest(2048) <= 4.1 * largest(512)
