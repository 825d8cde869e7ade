"""Attention: both paths against each other and against a plain per-head computation in fp64."""

import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError
from clearhead.models import family
from clearhead.nn import Attention, BoundMask, Mask, RelativeKeys, Rotary, trace
from clearhead.nn.masks import from_attention_mask

WIDTH = 24


# --- a reference -------------------------------------------------------------------------------------------------


def turned(x: Tensor, positions: Tensor, rotary: Rotary) -> Tensor:
    """RoFormer as it is written: pairs of dimensions as complex numbers, multiplied by e^(i · position · wave)."""
    d = rotary.rotated
    first, second = (
        (list(range(0, d, 2)), list(range(1, d, 2)))
        if rotary.pairing == "neighbours"
        else (list(range(d // 2)), list(range(d // 2, d)))
    )
    wave = torch.tensor([rotary.base ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angle = positions[:, None, :, None].double() * wave
    z = torch.complex(x[..., first], x[..., second]) * torch.polar(torch.ones_like(angle), angle)
    out = x.clone()
    out[..., first], out[..., second] = z.real, z.imag
    return out


def plain_attention(
    layer: Attention,
    x: Tensor,
    memory: Tensor | None,
    allowed: Tensor,
    added: Tensor,
    positions: Tensor,
) -> tuple[Tensor, Tensor]:
    """(output, weights) of `layer` in fp64, head by head, from its weights alone.

    Differentiable with respect to x, memory and the layer's parameters, all of which are fp64 here.
    """
    source = memory if layer.cross else x
    assert source is not None
    q_rows, kv_rows = layer.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    if layer.fused and not layer.cross:
        weight, bias = layer.qkv.weight, layer.qkv.bias
        cuts = [slice(0, q_rows), slice(q_rows, q_rows + kv_rows), slice(q_rows + kv_rows, None)]
        parts = [(weight[cut], None if bias is None else bias[cut]) for cut in cuts]
    else:
        parts = [(layer.query.weight, layer.query.bias)]
        if layer.fused:
            weight, bias = layer.key_value.weight, layer.key_value.bias
            for cut in (slice(0, kv_rows), slice(kv_rows, None)):
                parts.append((weight[cut], None if bias is None else bias[cut]))
        else:
            parts += [(layer.key.weight, layer.key.bias), (layer.value.weight, layer.value.bias)]
    q, k, v = (
        inputs @ weight.t() + (0 if bias is None else bias)
        for inputs, (weight, bias) in zip((x, source, source), parts, strict=True)
    )
    every_weight, every_head = [], []
    for h in range(layer.heads):
        own = slice(h * layer.head_dim, (h + 1) * layer.head_dim)
        g = h // (layer.heads // layer.kv_heads)
        shared = slice(g * layer.head_dim, (g + 1) * layer.head_dim)
        qh, kh, vh = q[..., own], k[..., shared], v[..., shared]
        if layer.rotary is not None:
            qh, kh = (turned(t[:, None], positions, layer.rotary)[:, 0] for t in (qh, kh))
        scores = qh @ kh.transpose(-1, -2)
        if isinstance(layer.relative, RelativeKeys):
            most, queries, keys = layer.relative.max_distance, qh.shape[1], kh.shape[1]
            i = torch.arange(keys - queries, keys)[:, None]
            vectors = layer.relative.table.weight[(i - torch.arange(keys)).clamp(-most, most) + most]
            scores = scores + torch.einsum("bqd,qkd->bqk", qh, vectors)
            if layer.relative.with_key:
                scores = scores + torch.einsum("bkd,qkd->bqk", kh, vectors)
        scores = scores * layer.scale + added[:, h]
        weights = torch.zeros_like(scores)
        sees = allowed[:, h].any(-1)
        shut = scores.masked_fill(~allowed[:, h], -torch.inf)
        weights[sees] = torch.softmax(shut[sees], -1)
        every_weight.append(weights)
        every_head.append(weights @ vh)
    out = torch.cat(every_head, -1) @ layer.output.weight.t()
    out = out if layer.output.bias is None else out + layer.output.bias
    return out, torch.stack(every_weight, 1)


@dataclass
class Case:
    layer: Attention
    x: Tensor
    memory: Tensor | None
    mask: BoundMask
    bias: Tensor | None
    positions: Tensor
    allowed: Tensor
    added: Tensor

    def run(self, watched: bool) -> tuple[Tensor, Tensor | None]:
        def forward() -> Tensor:
            return self.layer(self.x, self.mask, memory=self.memory, position_ids=self.positions, bias=self.bias)

        if not watched:
            return forward(), None
        with trace(self.layer, "weights") as seen:
            out = forward()
        return out, seen["weights"]

    def leaves(self) -> list[Tensor]:
        given = [self.x, self.memory, self.bias]
        return [*(t for t in given if t is not None), *self.layer.parameters()]


def random_case(seed: int) -> Case:
    """Any combination of what Attention can do."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    cross, batch, query = choose.random() < 0.4, choose.randint(1, 3), choose.randint(1, 6)
    key = choose.randint(1, 7) if cross else query
    heads = choose.choice([1, 2, 4])
    kv_heads = choose.choice([n for n in (1, 2, 4) if heads % n == 0])
    head_dim = choose.choice([None, 4, 10])
    size = head_dim or WIDTH // heads
    scheme = choose.choice(["none", "none", "rotary", "relative"])
    rotary = relative = None
    if cross:
        pass  # these schemes measure distances inside one sequence
    elif scheme == "rotary":
        rotary = Rotary(size, choose.choice([None, 2]), pairing=choose.choice(["neighbours", "halves"]))
    elif scheme == "relative":
        relative = RelativeKeys(choose.choice([1, 3, 9]), size, with_key=kv_heads == heads and choose.random() < 0.5)
        nn.init.normal_(relative.table.weight, std=0.5)
    memory_width = choose.choice([None, 10]) if cross else None
    layer = Attention(
        WIDTH,
        heads,
        head_dim=head_dim,
        kv_heads=kv_heads,
        cross=cross,
        memory_width=memory_width,
        fused=choose.random() < 0.5,
        bias=choose.random() < 0.7,
        out_bias=choose.choice([None, True, False]),
        scale=choose.choice([None, 1.0, 0.3]),
        dropout=0.3,
        upcast=choose.random() < 0.3,
        rotary=rotary,
        relative=relative,
    ).eval()
    kind = choose.choice(["none", "causal", "padding", "window", "additive", "all"])
    allowed = torch.ones(batch, heads, query, key, dtype=torch.bool)
    added = torch.zeros(batch, heads, query, key)
    mask = Mask()
    at, to = torch.arange(key - query, key)[:, None], torch.arange(key)
    if kind in ("causal", "all") and not cross:
        mask = mask & Mask(causal=True)
        allowed = allowed & (to <= at)
    if kind in ("window", "all") and query <= key:  # a window counts from queries that are the last of the keys
        mask = mask & Mask(window=2)
        allowed = allowed & ((at - to).abs() < 2)
    if kind in ("padding", "all"):
        padding = torch.rand(batch, key) < 0.7
        mask = mask & from_attention_mask(padding, batch, query, key)
        allowed = allowed & padding[:, None, None]
    if kind in ("additive", "all"):
        extra = torch.randn(batch, choose.choice([1, heads]), query, key)
        mask = mask & from_attention_mask(extra, batch, query, key)
        added = added + extra
    bias = torch.randn(choose.choice([1, batch]), heads, query, key) if choose.random() < 0.4 else None
    return Case(
        layer,
        torch.randn(batch, query, WIDTH, requires_grad=True),
        torch.randn(batch, key, memory_width or WIDTH, requires_grad=True) if cross else None,
        mask.bind(query, key),
        None if bias is None else bias.requires_grad_(),
        torch.randint(0, 30, (choose.choice([1, batch]), query)),
        allowed,
        added,
    )


# --- the two paths and the reference -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(150))
def test_explicit_path_fast_path_and_reference_agree(seed):
    case = random_case(seed)
    slope = torch.randn(*case.x.shape)
    results = []
    for watched in (False, True):
        out, weights = case.run(watched)
        grads = torch.autograd.grad((out * slope).sum(), case.leaves(), allow_unused=True)
        results.append((out, weights, grads))
    (fast, _, fast_grads), (explicit, weights, explicit_grads) = results
    assert weights is not None

    wide = random_case(seed)  # the same again, to be widened
    wide.layer.double()
    x = case.x.detach().double().requires_grad_()
    memory = None if case.memory is None else case.memory.detach().double().requires_grad_()
    bias = None if case.bias is None else case.bias.detach().double().requires_grad_()
    added = case.added.double() + (0 if bias is None else bias)
    want, want_weights = plain_attention(
        wide.layer, x, memory, case.allowed, added.expand(case.allowed.shape), case.positions
    )
    leaves = [*(t for t in (x, memory, bias) if t is not None), *wide.layer.parameters()]
    want_grads = torch.autograd.grad((want * slope.double()).sum(), leaves, allow_unused=True)

    for out in (fast, explicit):
        torch.testing.assert_close(out.double(), want, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(weights.double(), want_weights, rtol=1e-4, atol=1e-5)
    for ours in (fast_grads, explicit_grads):
        for got, expected in zip(ours, want_grads, strict=True):
            expected = torch.zeros_like(leaves[0]) if expected is None else expected
            got = torch.zeros_like(expected) if got is None else got
            torch.testing.assert_close(got.double(), expected, rtol=1e-3, atol=1e-4)


def test_the_random_cases_reach_every_combination():
    """The test above is worth as much as its cases: each option must occur, and with each mask."""
    cases = [random_case(seed) for seed in range(150)]
    for wanted in (
        lambda c: c.layer.cross and c.layer.fused,
        lambda c: c.layer.fused and not c.layer.cross and c.layer.kv_heads < c.layer.heads,
        lambda c: c.layer.rotary is not None and c.layer.kv_heads < c.layer.heads,
        lambda c: c.layer.relative is not None and c.layer.relative.with_key and c.bias is not None,
        lambda c: c.layer.upcast and c.bias is not None,
        lambda c: c.mask.is_causal and c.bias is not None,
        lambda c: c.mask.is_causal and c.bias is None and c.layer.relative is None,
        lambda c: c.mask.fully_masked is not None and bool(c.mask.fully_masked.any()),
        lambda c: c.mask.added is not None and c.mask.visible is not None,
    ):
        assert any(wanted(case) for case in cases)


@pytest.mark.parametrize("seed", range(0, 150, 6))
def test_weights_are_a_distribution_over_what_may_be_seen(seed):
    case = random_case(seed)
    _, weights = case.run(watched=True)
    assert weights is not None and (weights >= 0).all()
    assert not weights.masked_select(~case.allowed).any()
    sees = case.allowed.any(-1)
    torch.testing.assert_close(weights.sum(-1), sees.float())


@pytest.mark.parametrize("seed", range(0, 150, 8))
def test_the_paths_agree_in_bf16(seed):
    case = random_case(seed)
    case.layer.bfloat16()
    case.x = case.x.detach().bfloat16()
    case.memory = None if case.memory is None else case.memory.detach().bfloat16()
    fast, _ = case.run(watched=False)
    explicit, weights = case.run(watched=True)
    assert fast.dtype == explicit.dtype == torch.bfloat16 and weights is not None
    torch.testing.assert_close(fast, explicit, rtol=5e-2, atol=5e-2)


def test_the_paths_agree_to_the_last_digits_in_fp64():
    """Nothing on the explicit path may narrow a double: gradients are checked numerically in fp64."""
    torch.manual_seed(0)
    layer, x = Attention(WIDTH, 4).double(), torch.randn(2, 5, WIDTH, dtype=torch.float64)
    mask = Mask(causal=True).bind(5, 5)
    fast = layer(x, mask)
    with trace(layer, "weights") as seen:
        explicit = layer(x, mask)
    assert seen["weights"].dtype == torch.float64
    torch.testing.assert_close(explicit, fast, rtol=1e-12, atol=1e-12)


def test_relative_keys_that_look_at_keys_work_with_shared_key_heads():
    torch.manual_seed(0)
    layer = Attention(16, 4, kv_heads=2, relative=RelativeKeys(3, 4, with_key=True)).double()
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    all_seen = torch.ones(2, 4, 5, 5, dtype=torch.bool)
    want, _ = plain_attention(layer, x, None, all_seen, torch.zeros(2, 4, 5, 5), torch.arange(5)[None])
    torch.testing.assert_close(layer(x, BoundMask()), want)


# --- against torch.nn --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_it_is_torch_multihead_attention(fused, cross):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
    nn.init.normal_(theirs.in_proj_bias)
    ours = Attention(WIDTH, 4, cross=cross, fused=fused)
    weight, bias = theirs.in_proj_weight.data, theirs.in_proj_bias.data
    named = {
        "qkv": (weight, bias),
        "query": (weight[:WIDTH], bias[:WIDTH]),
        "key": (weight[WIDTH : 2 * WIDTH], bias[WIDTH : 2 * WIDTH]),
        "value": (weight[2 * WIDTH :], bias[2 * WIDTH :]),
        "key_value": (weight[WIDTH:], bias[WIDTH:]),
        "output": (theirs.out_proj.weight.data, theirs.out_proj.bias.data),
    }
    for name, linear in ours.named_children():
        linear.weight.data.copy_(named[name][0])
        linear.bias.data.copy_(named[name][1])
    x, memory = torch.randn(2, 5, WIDTH), torch.randn(2, 7 if cross else 5, WIDTH)
    source = memory if cross else x
    hidden = torch.zeros(2, source.shape[1], dtype=torch.bool)
    hidden[1, -2:] = True
    want, want_weights = theirs(x, source, source, key_padding_mask=hidden, average_attn_weights=False)
    mask = from_attention_mask(~hidden, 2, 5, source.shape[1]).bind(5, source.shape[1])
    torch.testing.assert_close(ours(x, mask, memory=memory if cross else None), want, rtol=1e-5, atol=1e-6)
    with trace(ours, "weights") as seen:
        ours(x, mask, memory=memory if cross else None)
    torch.testing.assert_close(seen["weights"], want_weights, rtol=1e-5, atol=1e-6)


# --- the taps' meaning -------------------------------------------------------------------------------------------


def test_announced_tensors_follow_from_each_other():
    torch.manual_seed(0)
    layer = Attention(WIDTH, 4, rotary=Rotary(6), relative=RelativeKeys(4, 6))
    x, bias = torch.randn(2, 5, WIDTH), torch.randn(1, 4, 5, 5)
    mask = Mask(causal=True).bind(5, 5)
    with trace(layer, "*") as seen:
        out = layer(x, mask, position_ids=torch.arange(5)[None], bias=bias)
    q, k, v = seen["query"], seen["key"], seen["value"]
    shapes = {name: tuple(t.shape) for name, t in seen.items()}
    per_head, square = (2, 4, 5, 6), (2, 4, 5, 5)
    assert shapes == {
        "query": per_head,
        "key": per_head,
        "value": per_head,
        "scores": square,
        "weights": square,
        "heads": per_head,
        "output": (2, 5, WIDTH),
    }
    # scores: scaled, biased, before the mask
    torch.testing.assert_close(seen["scores"], (q @ k.mT + layer.relative(q, k)) * 6**-0.5 + bias)
    assert seen["scores"].isfinite().all()
    upper = torch.ones(5, 5, dtype=torch.bool).triu(1)
    torch.testing.assert_close(seen["weights"], seen["scores"].masked_fill(upper, -torch.inf).softmax(-1))
    torch.testing.assert_close(seen["heads"], seen["weights"] @ v)
    joined = torch.cat([seen["heads"][:, h] for h in range(4)], -1)
    torch.testing.assert_close(seen["output"], layer.output(joined))
    assert torch.equal(seen["output"], out)


def test_the_explicit_path_runs_only_where_it_is_asked_for(monkeypatch):
    gpt2 = family("gpt2")
    sizes = {"vocab_size": 19, "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 3}
    model = gpt2.make(gpt2.config(max_position_embeddings=16, **sizes))
    real, calls = torch.nn.functional.scaled_dot_product_attention, []

    def spy(*args, **options):
        calls.append(1)
        return real(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    ids = torch.arange(10).view(2, 5)
    for patterns, fused_layers in (
        ([], 3),
        (["layers.*.attention.query|key|value|heads|output", "layers.*.output", "logits"], 3),
        (["layers.1.attention.weights"], 2),
        (["layers.1.attention.scores"], 2),
        (["layers.*.attention.weights"], 0),
    ):
        calls.clear()
        with trace(model, *patterns):
            model(ids)
        assert len(calls) == fused_layers, patterns
    calls.clear()
    with trace(model, replace={"layers.2.attention.scores": torch.zeros_like}):
        model(ids)
    assert len(calls) == 2


# --- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("watched", [False, True], ids=["fast", "explicit"])
def test_dropout_acts_in_training_only(watched):
    torch.manual_seed(0)
    layer, x = Attention(WIDTH, 4, dropout=0.5), torch.randn(2, 6, WIDTH)
    without = Attention(WIDTH, 4, dropout=0.0)
    without.load_state_dict(layer.state_dict())

    def run(module: Attention) -> Tensor:
        if not watched:
            return module(x, BoundMask())
        with trace(module, "weights") as seen:
            out = module(x, BoundMask())
        torch.testing.assert_close(seen["weights"].sum(-1), torch.ones(2, 4, 6))  # announced before dropout
        return out

    want = run(without.eval())
    assert torch.equal(run(layer.eval()), want)
    layer.train()
    assert not torch.allclose(run(layer), run(layer))
    mean = torch.stack([run(layer) for _ in range(800)]).mean(0)
    torch.testing.assert_close(mean, want, rtol=0, atol=0.15)
    assert (mean - want).abs().mean() < 0.02


def test_upcast_scores_are_fp32_in_a_bf16_model():
    torch.manual_seed(0)
    layer, x = Attention(WIDTH, 4, upcast=True).bfloat16(), torch.randn(2, 5, WIDTH).bfloat16()
    with trace(layer, "query", "key", "scores", "weights") as seen:
        out = layer(x, BoundMask())
    assert seen["scores"].dtype == torch.float32 and out.dtype == torch.bfloat16
    exact = seen["query"].float() @ seen["key"].float().mT * layer.scale
    assert torch.equal(seen["scores"], exact)


def test_upcast_scores_stay_fp32_under_autocast():
    torch.manual_seed(0)
    layer, x = Attention(WIDTH, 4, upcast=True), torch.randn(2, 5, WIDTH)
    with torch.autocast("cpu", dtype=torch.bfloat16), trace(layer, "query", "key", "scores") as seen:
        layer(x, BoundMask())
    assert seen["scores"].dtype == torch.float32
    exact = seen["query"].float() @ seen["key"].float().mT * layer.scale
    torch.testing.assert_close(seen["scores"], exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("watched", [False, True], ids=["fast", "explicit"])
def test_both_paths_run_under_autocast(watched):
    torch.manual_seed(0)
    layer, x = Attention(WIDTH, 4, relative=RelativeKeys(3, 6)), torch.randn(2, 5, WIDTH)
    padding = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    mask = (Mask(causal=True) & from_attention_mask(padding, 2, 5, 5)).bind(5, 5)
    want = layer(x, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16), trace(layer, "weights" if watched else "heads"):
        got = layer(x, mask, bias=torch.zeros(1, 4, 5, 5))
    torch.testing.assert_close(got.float(), want, rtol=5e-2, atol=5e-2)


def test_the_default_scale_keeps_scores_at_unit_variance():
    for head_dim in (4, 64):
        layer = Attention(WIDTH, 4, head_dim=head_dim)
        assert layer.scale == pytest.approx(head_dim**-0.5)


def test_biases_are_where_they_are_asked_for():
    def biased(**options: bool) -> set[str]:
        layer = Attention(WIDTH, 4, **options)
        return {name for name, module in layer.named_children() if module.bias is not None}

    assert biased() == {"query", "key", "value", "output"}
    assert biased(bias=False) == set()
    assert biased(bias=False, out_bias=True) == {"output"}
    assert biased(out_bias=False) == {"query", "key", "value"}
    assert biased(fused=True) == {"qkv", "output"}
    assert biased(fused=True, cross=True) == {"query", "key_value", "output"}


def test_impossible_sizes_are_refused():
    with pytest.raises(ConfigError, match="25"):
        Attention(25, 4)
    with pytest.raises(ConfigError, match="evenly"):
        Attention(24, 4, kv_heads=3)
    assert Attention(25, 4, head_dim=6).output.in_features == 24  # no need to divide when the head's size is given


@pytest.mark.parametrize("scheme", ["rotary", "relative"])
def test_distances_between_two_sequences_are_refused(scheme):
    """Query n of a decoder is at no distance from position m of an encoder (and a cache would change the answer)."""
    made = {"rotary": Rotary(6), "relative": RelativeKeys(3, 6)}[scheme]
    with pytest.raises(ConfigError, match=scheme):
        Attention(WIDTH, 4, cross=True, **{scheme: made})
