"""Who may see whom: every kind of mask against a double loop, on both paths of attention."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import family
from clearhead.nn import BoundMask, Mask, attend, masks, trace
from clearhead.nn.attention import ATTENTION_TAPS
from clearhead.nn.masks import from_attention_mask

BATCH, HEADS, HEAD_DIM = 2, 3, 4
PATHS = ("fast", "explicit")


class Probe(nn.Module):
    """A module to announce under, so that `attend` can be watched without the rest of an attention layer."""

    taps = ATTENTION_TAPS


def run(path: str, query: Tensor, key: Tensor, value: Tensor, mask: BoundMask, **options) -> Tensor:
    probe = Probe()
    options.setdefault("scale", 0.5)
    if path == "fast":
        return attend(probe, query, key, value, mask, **options)
    with trace(probe, "weights"):
        return attend(probe, query, key, value, mask, **options)


def qkv(query: int, key: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    return [torch.randn(BATCH, HEADS, n, HEAD_DIM, generator=drawn).to(dtype) for n in (query, key, key)]


def allowed_by_loop(
    query: int,
    key: int,
    *,
    causal: bool = False,
    window: int | None = None,
    visible: Tensor | None = None,
    added: Tensor | None = None,
) -> Tensor:
    """(BATCH, HEADS, query, key), decided one pair at a time; query i is the (key - query + i)th of the keys."""
    out = torch.zeros(BATCH, HEADS, query, key, dtype=torch.bool)
    visible = None if visible is None else visible.expand(BATCH, HEADS, query, key)
    added = None if added is None else added.expand(BATCH, HEADS, query, key)
    for b in range(BATCH):
        for h in range(HEADS):
            for i in range(query):
                for j in range(key):
                    at = key - query + i
                    sees = not causal or j <= at
                    sees = sees and (window is None or (at - window < j < at + window))
                    sees = sees and (visible is None or bool(visible[b, h, i, j]))
                    sees = sees and (added is None or added[b, h, i, j].item() != float("-inf"))
                    out[b, h, i, j] = sees
    return out


def attention_by_loop(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, added: Tensor, scale: float
) -> Tensor:
    """Softmax over the keys each query may see, in fp64; zeros where there is none."""
    q, k, v, added = query.double(), key.double(), value.double(), added.double()
    rows = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if allowed[b, h, i, j]]
                if not seen:
                    rows.append(torch.zeros(v.shape[-1], dtype=torch.float64))
                    continue
                scores = torch.stack([(q[b, h, i] * k[b, h, j]).sum() * scale + added[b, h, i, j] for j in seen])
                exps = (scores - scores.max()).exp()
                rows.append((exps / exps.sum()) @ v[b, h, seen])
    return torch.stack(rows).view(*q.shape[:3], v.shape[-1])


def hidden_and_fully_masked(bound: BoundMask, query: int, key: int) -> tuple[Tensor, Tensor]:
    """What a bound mask hides (from zero scores) and which queries it zeroes, both at full size."""
    scores = bound.hide(torch.zeros(BATCH, HEADS, query, key))
    fully_masked = torch.zeros(BATCH, HEADS, query, 1, dtype=torch.bool)
    return scores == -torch.inf, fully_masked if bound.fully_masked is None else fully_masked | bound.fully_masked


# --- the rule itself ---------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_composition_hides_what_the_double_loop_hides(data):
    query = data.draw(st.integers(1, 5), "query")
    key = query + data.draw(st.integers(0, 4), "past")
    causal = data.draw(st.booleans(), "causal")
    window = data.draw(st.none() | st.integers(1, 10), "window")
    drawn = torch.Generator().manual_seed(data.draw(st.integers(0, 10_000), "seed"))
    shape = data.draw(
        st.sampled_from([(BATCH, 1, 1, key), (BATCH, 1, query, key), (1, HEADS, query, key), (query, key)]), "shape"
    )
    visible = torch.rand(shape, generator=drawn) < 0.6 if data.draw(st.booleans(), "bool mask") else None
    added = None
    if data.draw(st.booleans(), "additive mask"):
        added = torch.randn(BATCH, 1, query, key, generator=drawn)
        added[torch.rand(added.shape, generator=drawn) < 0.4] = -torch.inf

    mask = Mask(causal=causal) & Mask(window=window)
    if visible is not None:
        mask = mask & Mask(visible=(visible,))
    if added is not None:
        mask = Mask(added=(added,)) & mask
    bound = mask.bind(query, key)

    allowed = allowed_by_loop(query, key, causal=causal, window=window, visible=visible, added=added)
    sees_nothing = ~allowed.any(-1, keepdim=True)
    hidden, fully_masked = hidden_and_fully_masked(bound, query, key)
    assert torch.equal(fully_masked, sees_nothing)
    # A query that sees nothing is opened wholly (its softmax is defined) and zeroed afterwards.
    assert torch.equal(hidden, ~(allowed | sees_nothing))

    tensors = qkv(query, key)
    plain = added.expand(BATCH, HEADS, query, key) if added is not None else torch.zeros(BATCH, HEADS, query, key)
    want = attention_by_loop(*tensors, allowed, plain, 0.5).float()
    for path in PATHS:
        torch.testing.assert_close(run(path, *tensors, bound), want, rtol=1e-5, atol=1e-6)


def test_a_window_of_one_sees_only_itself():
    hidden, _ = hidden_and_fully_masked(Mask(window=1).bind(4, 4), 4, 4)
    assert torch.equal(~hidden[0, 0], torch.eye(4, dtype=torch.bool))


def test_a_causal_window_counts_the_position_itself():
    hidden, _ = hidden_and_fully_masked(Mask(causal=True, window=2).bind(4, 4), 4, 4)
    want = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], dtype=torch.bool)
    assert torch.equal(~hidden[0, 0], want)


def test_composition_is_an_intersection_in_any_order():
    drawn = torch.Generator().manual_seed(3)
    one = Mask(visible=(torch.rand(BATCH, 1, 1, 6, generator=drawn) < 0.7,), window=4)
    two = Mask(visible=(torch.rand(1, HEADS, 6, 6, generator=drawn) < 0.7,), causal=True, window=3)
    both = [hidden_and_fully_masked(mask.bind(6, 6), 6, 6) for mask in (one & two, two & one)]
    assert torch.equal(both[0][0], both[1][0]) and torch.equal(both[0][1], both[1][1])
    assert (one & two).window == (two & one).window == 3
    assert (one & two).causal and (two & one).causal
    allowed = allowed_by_loop(6, 6, causal=True, window=3, visible=one.visible[0] & two.visible[0])
    assert torch.equal(both[0][1], ~allowed.any(-1, keepdim=True))


def test_within_narrows_and_none_leaves_alone():
    mask = Mask(causal=True, window=5)
    assert mask.within(None) is mask
    assert mask.within(3) == Mask(causal=True, window=3)
    assert mask.within(9) == mask


def test_additive_masks_add_up():
    first, second = torch.randn(1, 1, 3, 3), torch.randn(BATCH, HEADS, 1, 3)
    bound = (Mask(added=(first,)) & Mask(added=(second,))).bind(3, 3)
    scores = torch.randn(BATCH, HEADS, 3, 3)
    torch.testing.assert_close(bound.hide(scores), scores + first + second)


@pytest.mark.parametrize("path", PATHS)
def test_a_row_of_large_finite_numbers_is_still_seen(path):
    """Only -inf hides; the lowest number everywhere prefers nothing, so the query averages, as in transformers."""
    low = torch.zeros(BATCH, 1, 3, 3)
    low[:, :, 1] = torch.finfo(torch.float32).min
    query, key, value = qkv(3, 3)
    out = run(path, query, key, value, Mask(added=(low,)).bind(3, 3))
    torch.testing.assert_close(out[:, :, 1], value.mean(2))


def test_two_large_finite_additive_masks_may_overflow_together_without_harm():
    low = torch.full((BATCH, 1, 3, 3), torch.finfo(torch.float32).min)
    bound = (Mask(added=(low,)) & Mask(added=(low,))).bind(3, 3)
    for path in PATHS:
        assert torch.equal(run(path, *qkv(3, 3), bound), torch.zeros(BATCH, HEADS, 3, HEAD_DIM))


# --- nothing dense while a flag will do --------------------------------------------------------------------------


def test_plain_cases_bind_to_no_tensor_at_all():
    assert Mask().bind(5, 5) == BoundMask()
    assert Mask().bind(2, 7) == BoundMask()
    assert Mask(causal=True).bind(5, 5) == BoundMask(is_causal=True)
    assert Mask(causal=True).bind(1, 7) == BoundMask()  # one last query sees all that came before
    assert Mask(causal=True, window=5).bind(5, 5) == BoundMask(is_causal=True)  # the window covers everything
    assert Mask(window=5).bind(5, 5) == BoundMask()
    assert Mask(causal=True).bind(1, 1) == BoundMask()


def test_causal_with_a_past_needs_a_mask_and_aligns_it_to_the_end():
    bound = Mask(causal=True).bind(2, 5)
    assert not bound.is_causal and bound.visible is not None
    assert bound.visible.tolist() == [[True] * 4 + [False], [True] * 5]


@pytest.fixture
def sdpa_calls(monkeypatch):
    """Every call of scaled_dot_product_attention, by its keyword arguments."""
    real, calls = torch.nn.functional.scaled_dot_product_attention, []

    def spy(query, key, value, **options):
        calls.append(options)
        return real(query, key, value, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    return calls


def tiny_gpt2(**more):
    gpt2 = family("gpt2")
    sizes = {"vocab_size": 19, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    torch.manual_seed(0)
    return gpt2.make(gpt2.config(max_position_embeddings=16, **sizes, **more))


@pytest.mark.parametrize("given_mask", [None, "ones", "bool ones", "square of ones"])
def test_a_causal_model_never_builds_a_dense_mask(monkeypatch, sdpa_calls, given_mask):
    def never(*_args, **_options):
        raise AssertionError("a dense mask was built")

    monkeypatch.setattr(masks, "_distance_visible", never)
    ones = {
        None: None,
        "ones": torch.ones(2, 7, dtype=torch.long),
        "bool ones": torch.ones(2, 7, dtype=torch.bool),
        "square of ones": torch.ones(2, 7, 7),
    }
    model = tiny_gpt2()
    ids = torch.arange(14).view(2, 7)
    out = model(ids, attention_mask=ones[given_mask], use_cache=True)
    assert len(sdpa_calls) == 2
    assert all(call["is_causal"] is True and call["attn_mask"] is None for call in sdpa_calls)
    sdpa_calls.clear()
    model(ids[:, :1], past_key_values=out.past_key_values)
    assert len(sdpa_calls) == 2
    assert all(call["is_causal"] is False and call["attn_mask"] is None for call in sdpa_calls)


def test_a_causal_mask_with_a_bias_becomes_one_tensor(sdpa_calls):
    bias = torch.randn(1, HEADS, 4, 4)
    got = run("fast", *qkv(4, 4), Mask(causal=True).bind(4, 4), bias=bias)
    (call,) = sdpa_calls
    assert call["is_causal"] is False
    upper = torch.ones(4, 4, dtype=torch.bool).triu(1)
    assert torch.equal(call["attn_mask"], bias.masked_fill(upper, -torch.inf))
    want = attention_by_loop(
        *qkv(4, 4), allowed_by_loop(4, 4, causal=True), bias.expand(BATCH, HEADS, 4, 4), 0.5
    ).float()
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_a_boolean_mask_stays_boolean_for_sdpa():
    visible = torch.tensor([[True, False, True]]).view(1, 1, 1, 3)
    handed = Mask(visible=(visible,)).bind(3, 3).for_sdpa(torch.bfloat16)
    assert handed is not None and handed.dtype == torch.bool
    dense = Mask(visible=(visible,)).bind(3, 3).for_sdpa(torch.bfloat16, torch.zeros(1, 1, 3, 3))
    assert dense is not None and dense.dtype == torch.bfloat16
    assert torch.equal(dense == -torch.inf, ~visible.expand(1, 1, 3, 3))


# --- queries that see nothing ------------------------------------------------------------------------------------


def blind_masks() -> dict[str, tuple[Mask, Tensor, Tensor]]:
    """Masks under which some queries see nothing: (mask, allowed, added), all for 5 queries and keys."""
    padding = torch.tensor([[False] * 5, [True, True, False, False, False]]).view(BATCH, 1, 1, 5)
    left = torch.tensor([[False, False, True, True, True], [True] * 5]).view(BATCH, 1, 1, 5)
    added = torch.randn(BATCH, HEADS, 5, 5, generator=torch.Generator().manual_seed(5))
    added[0, 1, 2] = -torch.inf
    added[1, :, 4, 1:] = -torch.inf
    zeros = torch.zeros(BATCH, HEADS, 5, 5)
    meeting = zeros.clone()  # row 3 is fully masked only because the two masks together leave it nothing
    meeting[:, :, 3, :2] = -torch.inf
    first_two = torch.tensor([True, True, False, False, False]).expand(BATCH, 1, 5, 5)
    return {
        "padding": (Mask(visible=(padding,)), allowed_by_loop(5, 5, visible=padding), zeros),
        "causal and left padding": (
            Mask(causal=True, visible=(left,)),
            allowed_by_loop(5, 5, causal=True, visible=left),
            zeros,
        ),
        "causal window and padding": (
            Mask(causal=True, window=2, visible=(padding,)),
            allowed_by_loop(5, 5, causal=True, window=2, visible=padding),
            zeros,
        ),
        "additive": (Mask(added=(added,)), allowed_by_loop(5, 5, added=added), added),
        "boolean meets additive": (
            Mask(visible=(first_two,), added=(meeting,)),
            allowed_by_loop(5, 5, visible=first_two, added=meeting),
            meeting,
        ),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("with_bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("name", list(blind_masks()))
def test_queries_that_see_nothing_give_zeros_and_finite_gradients(name, with_bias, path, dtype):
    mask, allowed, added = blind_masks()[name]
    blind = ~allowed.any(-1)
    assert blind.any() and not blind.all()
    tensors = [t.requires_grad_() for t in qkv(5, 5, dtype)]
    bias = torch.randn(1, HEADS, 5, 5, generator=torch.Generator().manual_seed(8)).requires_grad_()
    out = run(path, *tensors, mask.bind(5, 5), bias=bias if with_bias else None)
    assert out.dtype == dtype and out.isfinite().all()
    assert torch.equal(out[blind], torch.zeros_like(out[blind]))

    doubles = [t.detach().double().requires_grad_() for t in tensors]
    wide = bias.detach().double().requires_grad_()
    total = added.double() + (wide if with_bias else 0)
    want = attention_by_loop(*doubles, allowed, total, 0.5)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 3e-2, "atol": 3e-2}
    torch.testing.assert_close(out.double(), want, **tolerance)

    slope = torch.randn(out.shape, generator=torch.Generator().manual_seed(9))
    leaves, wide_leaves = (tensors, doubles) if not with_bias else ([*tensors, bias], [*doubles, wide])
    got_grads = torch.autograd.grad((out * slope.to(dtype)).sum(), leaves)
    want_grads = torch.autograd.grad((want * slope).sum(), wide_leaves)
    for got, expected in zip(got_grads, want_grads, strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got.double(), expected, **tolerance)
    assert torch.equal(got_grads[0][blind], torch.zeros_like(got_grads[0][blind]))


@pytest.mark.parametrize("path", PATHS)
def test_a_batch_with_an_empty_text_trains_without_nan(path):
    model = tiny_gpt2()
    ids = torch.arange(10).view(2, 5)
    attention_mask = torch.tensor([[0] * 5, [0, 0, 1, 1, 1]])
    if path == "fast":
        out = model(ids, attention_mask=attention_mask, labels=ids)
    else:
        with trace(model, "layers.*.attention.weights") as seen:
            out = model(ids, attention_mask=attention_mask, labels=ids)
        assert not seen["layers.0.attention.weights"][0].any()
    out.loss.backward()
    assert out.loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_an_fp32_mask_of_lowest_numbers_survives_a_half_precision_model(dtype):
    """finfo(float32).min is -inf in a narrower type: a row of it must not turn into NaN on the way."""
    mask = torch.zeros(BATCH, 1, 3, 3)
    mask[0, :, 1] = torch.finfo(torch.float32).min
    bound = from_attention_mask(mask, BATCH, 3, 3).bind(3, 3)
    tensors = [t.requires_grad_() for t in qkv(3, 3, dtype)]
    fast, explicit = (run(path, *tensors, bound) for path in PATHS)
    for out in (fast, explicit):
        assert out.isfinite().all()
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), tensors))
    torch.testing.assert_close(fast, explicit, rtol=2e-2, atol=2e-2)


# --- what users pass ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query,key", [(4, 4), (2, 6)])
def test_the_forms_of_an_attention_mask_mean_the_same(query, key):
    seen = torch.rand(BATCH, key, generator=torch.Generator().manual_seed(1)) < 0.6
    seen[:, -1] = True
    square = seen[:, None].expand(BATCH, query, key)
    forms = [
        seen,
        seen.long(),
        seen.float(),
        seen.to(torch.uint8),
        square,
        square.long(),
        square[:, None],
        seen[:, None, None],
        square[:, None].expand(BATCH, HEADS, query, key),
        torch.zeros(BATCH, 1, query, key).masked_fill(~square[:, None], -torch.inf),
    ]
    tensors = qkv(query, key)
    want = attention_by_loop(
        *tensors,
        allowed_by_loop(query, key, causal=True, visible=seen[:, None, None]),
        torch.zeros(BATCH, HEADS, query, key),
        0.5,
    ).float()
    for form in forms:
        bound = (Mask(causal=True) & from_attention_mask(form, BATCH, query, key)).bind(query, key)
        for path in PATHS:
            torch.testing.assert_close(run(path, *tensors, bound), want, rtol=1e-5, atol=1e-6)


def test_a_square_mask_is_read_as_query_by_key():
    square = torch.tensor([[[1, 0, 0], [0, 1, 1], [1, 1, 0]]] * BATCH)
    hidden, _ = hidden_and_fully_masked(from_attention_mask(square, BATCH, 3, 3).bind(3, 3), 3, 3)
    assert torch.equal(~hidden[:, 0], square.bool())


def test_no_mask_and_a_full_mask_are_no_mask():
    assert from_attention_mask(None, 2, 3, 3) == Mask()
    assert from_attention_mask(torch.ones(2, 3), 2, 3, 3) == Mask()


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param([[1, 1, 1]], id="a list"),
        pytest.param(torch.ones(3), id="one axis"),
        pytest.param(torch.ones(2, 4), id="too long"),
        pytest.param(torch.ones(2, 2), id="too short"),
        pytest.param(torch.ones(3, 3), id="another batch"),
        pytest.param(torch.ones(1, 3), id="a batch of one"),
        pytest.param(torch.ones(2, 3, 4), id="square with too many keys"),
        pytest.param(torch.ones(2, 4, 3), id="square with too many queries"),
        pytest.param(torch.ones(2, 1, 3, 4), id="four axes, too many keys"),
        pytest.param(torch.ones(2, 1, 2, 3), id="four axes, too few queries"),
        pytest.param(torch.ones(5, 1, 3, 3), id="four axes, another batch"),
        pytest.param(torch.ones(2, 1, 1, 3, 3), id="five axes"),
        pytest.param(torch.ones(2, 1, 3, 3, dtype=torch.long), id="four axes of whole numbers"),
        pytest.param(torch.tensor([[0.0, -1e9, 0.0]] * 2), id="additive with two axes"),
        pytest.param(torch.full((2, 3), 2), id="neither 0 nor 1"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(mask):
    with pytest.raises(InputError, match="attention_mask"):
        from_attention_mask(mask, 2, 3, 3)


def test_a_mask_for_another_number_of_heads_is_refused():
    with pytest.raises(InputError, match="attention_mask"):
        tiny_gpt2()(torch.arange(6).view(2, 3), attention_mask=torch.ones(2, HEADS + 1, 3, 3, dtype=torch.bool))


def test_the_message_says_that_a_mask_covers_the_cache_too():
    model = tiny_gpt2()
    past = model(torch.arange(6).view(2, 3), use_cache=True).past_key_values
    with pytest.raises(InputError, match=r"\(2, 4\).*cache"):
        model(torch.ones(2, 1, dtype=torch.long), attention_mask=torch.ones(2, 1), past_key_values=past)
