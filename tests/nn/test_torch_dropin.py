"""The drop-ins against torch's classes: same weights, numbers and gradients; and then their glass walls."""

import copy
import inspect
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import clearhead.nn as ch
from clearhead.errors import ClearheadError, InputError
from clearhead.nn import tap_points, trace

# torch warns of mixed mask types and of nested tensors; neither is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

WIDTH, HEADS, BATCH, TIME, SOURCE = 8, 2, 3, 5, 4
CLASSES = (
    "MultiheadAttention",
    "TransformerEncoderLayer",
    "TransformerEncoder",
    "TransformerDecoderLayer",
    "TransformerDecoder",
    "Transformer",
)
causal_mask = ch.Transformer.generate_square_subsequent_mask


# --- helpers ---


def build(library: Any, name: str, seed: int = 0, *, layers: int = 2, norm: bool = True, **options: Any) -> nn.Module:
    """A small module of `library` (torch.nn or clearhead.nn), made after setting the seed."""
    torch.manual_seed(seed)
    if name == "MultiheadAttention":
        return library.MultiheadAttention(options.pop("width", WIDTH), options.pop("heads", HEADS), **options)
    width, heads = options.pop("width", WIDTH), options.pop("heads", HEADS)
    options = {"dim_feedforward": 12, "dropout": 0.0, **options}
    if name == "Transformer":
        counts = {"num_encoder_layers": layers, "num_decoder_layers": layers}
        return library.Transformer(width, heads, **{**counts, **options})
    if name.endswith("Layer"):
        return getattr(library, name)(width, heads, **options)
    stack = {key: options.pop(key) for key in ("enable_nested_tensor", "mask_check") if key in options}
    layer = getattr(library, f"{name}Layer")(width, heads, **options)
    return getattr(library, name)(layer, layers, nn.LayerNorm(width) if norm else None, **stack)


def pair(name: str, seed: int = 0, **options: Any) -> tuple[nn.Module, nn.Module]:
    """torch's module and ours with the same weights, none of them at the special values they start with."""
    theirs, ours = build(nn, name, seed, **options), build(ch, name, seed, **options)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.4)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def hidden(kind: str | None, *shape: int) -> Tensor | None:
    """A mask of a kind, with the first key always to be seen (torch gives NaN where none is)."""
    if kind is None:
        return None
    hide = torch.rand(shape) < 0.4
    hide[..., 0] = False
    if kind == "bool":
        return hide
    if kind == "inf":
        return torch.zeros(shape).masked_fill(hide, -torch.inf)
    return torch.randn(shape).masked_fill(hide, -torch.inf)


def as_list(outputs: Any) -> list[Tensor]:
    return [each for each in (outputs if isinstance(outputs, tuple) else (outputs,)) if each is not None]


def run(module: nn.Module, *args: Any, **kwargs: Any) -> tuple[list[Tensor], list[Tensor]]:
    """(outputs, gradients): of every float input, float masks among them, and of every parameter."""
    leaves: list[Tensor] = []
    copies: dict[int, Tensor] = {}  # a tensor given twice (query is key) stays one tensor

    def leaf(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            if id(value) not in copies:
                copies[id(value)] = value.detach().clone().requires_grad_()
                leaves.append(copies[id(value)])
            return copies[id(value)]
        return value

    args, kwargs = tuple(map(leaf, args)), {key: leaf(value) for key, value in kwargs.items()}
    outputs = as_list(module(*args, **kwargs))
    torch.manual_seed(7)  # a loss in which every number has its own weight
    loss = sum((output * torch.randn(output.shape)).mean() for output in outputs)
    wanted = [*leaves, *module.parameters()]
    grads = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    return outputs, list(grads)


def check_same(theirs: nn.Module, ours: nn.Module, *args: Any, **kwargs: Any) -> None:
    expected, got = run(theirs, *args, **kwargs), run(ours, *args, **kwargs)
    assert len(expected[0]) == len(got[0])
    for wanted, given in zip([*expected[0], *expected[1]], [*got[0], *got[1]], strict=True):
        check_close(given, wanted)


def check_close(given: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-6)


def check_same_in_inference(theirs: nn.Module, ours: nn.Module, *args: Any, **kwargs: Any) -> None:
    """As torch computes it without gradients, by its fast path where that applies."""
    with torch.no_grad():
        expected, got = theirs.eval()(*args, **kwargs), ours.eval()(*args, **kwargs)
    for wanted, given in zip(as_list(expected), as_list(got), strict=True):
        check_close(given, wanted)


def sequence(time: int, batch_first: bool, batch: int | None = BATCH, width: int = WIDTH) -> Tensor:
    if batch is None:
        return torch.randn(time, width)
    return torch.randn(batch, time, width) if batch_first else torch.randn(time, batch, width)


def layer_options(rng: random.Random) -> dict[str, Any]:
    return {
        "batch_first": rng.random() < 0.5,
        "norm_first": rng.random() < 0.5,
        "bias": rng.random() < 0.7,
        "activation": rng.choice(["relu", "gelu", F.relu, F.gelu, F.silu, nn.Tanh()]),
        "layer_norm_eps": rng.choice([1e-5, 1e-2]),
        "heads": rng.choice([1, 2, 4]),
    }


def draw_masks(
    rng: random.Random,
    name: str,
    batch: int | None,
    heads: int,
    query: int,
    key: int,
    kinds: list[str | None],
) -> dict[str, Tensor | None]:
    """{name}_mask, two- or three-dimensional, and {name}_key_padding_mask, of kinds drawn one by one."""
    lead = rng.choice([(), ((batch or 1) * heads,)])
    return {
        f"{name}_mask": hidden(rng.choice(kinds), *lead, query, key),
        f"{name}_key_padding_mask": hidden(rng.choice(kinds), *([batch] if batch else []), key),
    }


ANY_MASK: list[str | None] = [None, "bool", "inf", "float"]
HIDING_MASK: list[str | None] = [None, "bool", "inf"]  # torch's fast path misreads other floats


# --- construction ---


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"dtype": torch.float64}], ids=str)
def test_the_same_seed_gives_the_same_weights(name: str, options: dict[str, Any]) -> None:
    theirs = build(nn, name, seed=3, **options)
    drawn = torch.rand(1)
    ours = build(ch, name, seed=3, **options)
    assert torch.equal(drawn, torch.rand(1))  # just as many random numbers were used
    expected, got = theirs.state_dict(), ours.state_dict()
    assert list(expected) == list(got)
    for key in expected:
        assert torch.equal(expected[key], got[key]) and expected[key].dtype == got[key].dtype, key


@pytest.mark.parametrize("name", CLASSES)
def test_state_dicts_load_in_both_directions(name: str) -> None:
    theirs, ours = build(nn, name, seed=1), build(ch, name, seed=2)
    first = next(iter(theirs.state_dict()))
    theirs_before, ours_before = theirs.state_dict()[first].clone(), ours.state_dict()[first].clone()
    assert not torch.equal(theirs_before, ours_before)
    other = copy.deepcopy(theirs)
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(other.state_dict())
    assert torch.equal(theirs.state_dict()[first], ours_before)
    assert torch.equal(ours.state_dict()[first], theirs_before)


@pytest.mark.parametrize("name", CLASSES)
def test_arguments_and_attributes_are_torchs(name: str) -> None:
    for function in ("__init__", "forward"):
        expected, got = (inspect.signature(getattr(getattr(lib, name), function)).parameters for lib in (nn, ch))
        assert [(p.name, p.default) for p in got.values()] == [(p.name, p.default) for p in expected.values()]
    theirs, ours = build(nn, name), build(ch, name)
    assert isinstance(ours, type(theirs))
    assert theirs.__dict__.keys() == ours.__dict__.keys()
    assert [key for key, _ in theirs.named_modules()] == [key for key, _ in ours.named_modules()]


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "MultiheadAttention"])
def test_no_part_stays_torchs_own(name: str) -> None:
    kinds = {type(module) for module in build(ch, name).modules()}
    assert ch.MultiheadAttention in kinds
    assert not kinds & {getattr(nn, each) for each in CLASSES}


@pytest.mark.parametrize("library", [nn, ch])
def test_constructor_errors(library: Any) -> None:
    with pytest.raises(AssertionError, match="divisible"):
        library.MultiheadAttention(8, 3)
    with pytest.raises(ValueError, match="greater than 0"):
        library.MultiheadAttention(0, 1)
    with pytest.raises(RuntimeError, match="relu/gelu"):
        library.TransformerEncoderLayer(8, 2, activation="tanh")


def test_device_argument() -> None:
    model = ch.Transformer(WIDTH, HEADS, 1, 1, 12, device="meta", dtype=torch.bfloat16)
    assert {(p.device.type, p.dtype) for p in model.parameters()} == {("meta", torch.bfloat16)}


# --- numbers: attention ---


@pytest.mark.parametrize("seed", range(60))
def test_attention(seed: int) -> None:
    rng = random.Random(seed)
    heads, batch = rng.choice([1, 2, 4]), rng.choice([None, 1, BATCH])
    kdim, vdim = rng.choice([(None, None), (6, 10), (WIDTH, 10), (6, None)])
    options = {
        "heads": heads,
        "bias": rng.random() < 0.7,
        "add_bias_kv": rng.random() < 0.3,
        "add_zero_attn": rng.random() < 0.3,
        "batch_first": rng.random() < 0.5,
        "kdim": kdim,
        "vdim": vdim,
    }
    theirs, ours = pair("MultiheadAttention", seed, **options)
    first = options["batch_first"]
    query = sequence(TIME, first, batch)
    if kdim is None and vdim is None and rng.random() < 0.6:
        key = value = query if rng.random() < 0.5 else sequence(SOURCE, first, batch)
    else:
        key, value = (
            sequence(SOURCE, first, batch, kdim or WIDTH),
            sequence(SOURCE, first, batch, vdim or WIDTH),
        )
    source = TIME if key is query else SOURCE
    masks = draw_masks(rng, "attn", batch, heads, TIME, source, ANY_MASK)
    call = {
        "attn_mask": masks["attn_mask"],
        "key_padding_mask": masks["attn_key_padding_mask"],
        "need_weights": rng.random() < 0.5,
        "average_attn_weights": rng.random() < 0.5,
    }
    check_same(theirs, ours, query, key, value, **call)
    check_same_in_inference(theirs, ours, query, key, value, **call)


@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("padding", [None, "bool"])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("source", [TIME, TIME - 2, TIME + 2])
def test_attention_with_the_causal_hint(
    extra: dict[str, bool], padding: str | None, need_weights: bool, source: int
) -> None:
    theirs, ours = pair("MultiheadAttention", **extra)
    query, key = sequence(TIME, False), sequence(source, False)
    call = {
        "attn_mask": torch.ones(TIME, source, dtype=torch.bool).triu(1),
        "key_padding_mask": hidden(padding, BATCH, source),
        "need_weights": need_weights,
        "is_causal": True,
    }
    check_same(theirs, ours, query, key, key, **call)
    with trace(ours, "weights"):  # nor does it matter to the numbers whether somebody looks
        check_same(theirs, ours, query, key, key, **call)


@pytest.mark.parametrize("per_head", [False, True])
def test_returned_weights(per_head: bool) -> None:
    attention = build(ch, "MultiheadAttention", batch_first=True)
    x = sequence(TIME, True)
    mask, padding = hidden("bool", TIME, TIME), hidden("bool", BATCH, TIME)
    with trace(attention, "weights", "heads", "value") as seen:
        _, weights = attention(x, x, x, padding, attn_mask=mask, average_attn_weights=not per_head)
    kept = seen["weights"]
    torch.testing.assert_close(weights, kept if per_head else kept.mean(1))
    torch.testing.assert_close(kept.sum(-1), torch.ones(BATCH, HEADS, TIME))
    assert (kept.masked_select(mask | padding[:, None, None]) == 0).all()
    torch.testing.assert_close(seen["heads"], kept @ seen["value"])
    assert attention(x, x, x, need_weights=False)[1] is None


# --- numbers: layers and stacks ---


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerEncoder"])
def test_encoder(name: str, seed: int) -> None:
    rng = random.Random(seed)
    options, batch = layer_options(rng), rng.choice([None, 1, BATCH])
    theirs, ours = pair(name, seed, norm=rng.random() < 0.5, **options)
    src = sequence(TIME, options["batch_first"], batch)
    is_layer = name.endswith("Layer")

    def masks(kinds: list[str | None]) -> dict[str, Any]:
        drawn = draw_masks(rng, "src", batch, options["heads"], TIME, TIME, kinds)
        return drawn if is_layer else {"mask" if key == "src_mask" else key: m for key, m in drawn.items()}

    check_same(theirs, ours, src, **masks(ANY_MASK))
    causal = {"src_mask" if is_layer else "mask": causal_mask(TIME)}
    check_same(theirs, ours, src, **causal, is_causal=rng.choice([True, False] if is_layer else [True, False, None]))
    check_same_in_inference(theirs, ours, src, **masks(HIDING_MASK))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", ["TransformerDecoderLayer", "TransformerDecoder"])
def test_decoder(name: str, seed: int) -> None:
    rng = random.Random(seed)
    options, batch = layer_options(rng), rng.choice([None, 1, BATCH])
    theirs, ours = pair(name, seed, norm=rng.random() < 0.5, **options)
    tgt, memory = (sequence(time, options["batch_first"], batch) for time in (TIME, SOURCE))
    masks = {
        **draw_masks(rng, "tgt", batch, options["heads"], TIME, TIME, ANY_MASK),
        **draw_masks(rng, "memory", batch, options["heads"], TIME, SOURCE, ANY_MASK),
    }
    check_same(theirs, ours, tgt, memory, **masks)
    check_same_in_inference(theirs, ours, tgt, memory, **masks)
    causal = torch.ones(TIME, TIME, dtype=torch.bool).triu(1) if rng.random() < 0.5 else causal_mask(TIME)
    hints = {"tgt_is_causal": True, "memory_is_causal": rng.random() < 0.5}
    memory_mask = torch.ones(TIME, SOURCE, dtype=torch.bool).triu(1)
    check_same(theirs, ours, tgt, memory, tgt_mask=causal, memory_mask=memory_mask, **hints)


@pytest.mark.parametrize("seed", range(30))
def test_transformer(seed: int) -> None:
    rng = random.Random(seed)
    options, batch = layer_options(rng), rng.choice([None, 1, BATCH])
    theirs, ours = pair("Transformer", seed, layers=1, **options)
    src, tgt = (sequence(time, options["batch_first"], batch) for time in (SOURCE, TIME))
    sizes = {"src": (SOURCE, SOURCE), "tgt": (TIME, TIME), "memory": (TIME, SOURCE)}
    masks: dict[str, Any] = {}
    for name, (query, key) in sizes.items():
        masks |= draw_masks(rng, name, batch, options["heads"], query, key, HIDING_MASK)
    check_same(theirs, ours, src, tgt, **masks)
    check_same_in_inference(theirs, ours, src, tgt, **masks)
    masks |= {"src_mask": causal_mask(SOURCE), "tgt_mask": causal_mask(TIME)}
    said = rng.choice([None, True])
    check_same(theirs, ours, src, tgt, **masks, src_is_causal=said, tgt_is_causal=said)


@pytest.mark.parametrize("name", ["MultiheadAttention", "TransformerEncoder", "Transformer"])
def test_half_precision(name: str) -> None:
    theirs, ours = pair(name, batch_first=True)
    x = sequence(TIME, True)
    args = {"MultiheadAttention": (x, x, x), "TransformerEncoder": (x,), "Transformer": (x, x)}[name]
    exact, half = run(ours, *args)[0][0], run(ours.bfloat16(), *(a.bfloat16() for a in args))[0][0]
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), exact, rtol=0.05, atol=0.1)
    torch.testing.assert_close(half, run(theirs.bfloat16(), *(a.bfloat16() for a in args))[0][0], rtol=0.05, atol=0.1)


def test_double_precision_on_both_paths() -> None:
    theirs, ours = pair("MultiheadAttention", dtype=torch.float64)
    x = sequence(TIME, False).double()
    for need_weights in (False, True):
        wanted, got = (m(x, x, x, need_weights=need_weights)[0] for m in (theirs, ours))
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_autocast() -> None:
    theirs, ours = pair("Transformer", batch_first=True)
    src, tgt, padding = sequence(SOURCE, True), sequence(TIME, True), hidden("bool", BATCH, SOURCE)
    with torch.autocast("cpu", torch.bfloat16):
        wanted, got = (m(src, tgt, tgt_mask=causal_mask(TIME), src_key_padding_mask=padding) for m in (theirs, ours))
    torch.testing.assert_close(got, wanted, rtol=0.02, atol=0.05)
    assert not torch.equal(got, ours(src, tgt, tgt_mask=causal_mask(TIME), src_key_padding_mask=padding))


# --- padding that torch takes off ---


def left_aligned(kind: str) -> Tensor:
    hide = torch.arange(TIME) >= torch.tensor([[TIME], [2], [4]])
    return hide if kind == "bool" else torch.zeros(BATCH, TIME).masked_fill(hide, -torch.inf)


@pytest.mark.parametrize("kind", ["bool", "inf"])
@pytest.mark.parametrize("norm", [False, True])
def test_padding_ends_up_as_zeros_in_inference(kind: str, norm: bool) -> None:
    theirs, ours = pair("TransformerEncoder", batch_first=True, norm=norm)
    src, padding = sequence(TIME, True), left_aligned(kind)
    check_same_in_inference(theirs, ours, src, src_key_padding_mask=padding)
    with torch.no_grad():
        tail = ours(src, src_key_padding_mask=padding)[1, 2:]
    assert torch.equal(tail, ours.norm.bias.expand(3, -1) if norm else torch.zeros(3, WIDTH))
    with trace(ours, "layers.*.attention.weights"), torch.no_grad():  # somebody looking changes nothing
        torch.testing.assert_close(ours(src, src_key_padding_mask=padding)[1, 2:], tail)


def test_a_sequence_of_nothing_but_padding_in_inference() -> None:
    theirs, ours = pair("TransformerEncoder", batch_first=True)
    padding = left_aligned("bool")
    padding[1] = True
    check_same_in_inference(theirs, ours, sequence(TIME, True), src_key_padding_mask=padding)


@pytest.mark.parametrize(
    "why",
    [
        "autocast",
        "gradients",
        "training",
        "not at the end",
        "mask too",
        "odd heads",
        "time first",
        "norm first",
        "off",
        "switch",
    ],
)
def test_padding_is_computed_where_torch_computes_it(why: str) -> None:
    options: dict[str, Any] = {
        "odd heads": {"heads": 1},
        "time first": {"batch_first": False},
        "norm first": {"norm_first": True},
        "off": {"enable_nested_tensor": False},
    }.get(why, {})
    theirs, ours = pair("TransformerEncoder", norm=False, **{"batch_first": True, **options})
    src, padding = sequence(TIME, ours.layers[0].self_attn.batch_first), left_aligned("bool")
    mask = causal_mask(TIME) if why == "mask too" else None
    if why == "not at the end":
        padding = padding.flip(1)
        padding[:, 0] = False
    theirs.train(why == "training"), ours.train(why == "training")
    torch.backends.mha.set_fastpath_enabled(why != "switch")
    torch.set_autocast_enabled("cuda", why == "autocast")  # the one torch asks about, whatever the device
    try:
        with torch.set_grad_enabled(why == "gradients"):
            wanted, got = (m(src, mask=mask, src_key_padding_mask=padding) for m in (theirs, ours))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
        torch.set_autocast_enabled("cuda", False)
    check_close(got, wanted)
    padded = got[padding] if why != "time first" else got.transpose(0, 1)[padding]
    assert (padded != 0).all()


def test_without_mask_check() -> None:
    theirs, ours = pair("TransformerEncoder", batch_first=True, mask_check=False)
    check_same_in_inference(theirs, ours, sequence(TIME, True), src_key_padding_mask=left_aligned("bool"))


# --- where ours differs from torch on purpose ---


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_queries_that_see_nothing_get_zeros(kind: str, need_weights: bool) -> None:
    attention = build(ch, "MultiheadAttention", batch_first=True)
    nn.init.normal_(attention.out_proj.bias)
    x = sequence(TIME, True)
    mask = torch.zeros(TIME, TIME, dtype=torch.bool)
    mask[2] = True
    given = mask if kind == "bool" else torch.zeros(TIME, TIME).masked_fill(mask, -torch.inf)
    (output, *weights), grads = run(attention, x, x, x, attn_mask=given, need_weights=need_weights)
    torch.testing.assert_close(output[:, 2], attention.out_proj.bias.expand(BATCH, -1))  # zeros, projected
    assert all((each[:, 2] == 0).all() for each in weights)
    assert all(grad.isfinite().all() for grad in grads)
    unmasked = attention(x, x, x, need_weights=False)[0]
    torch.testing.assert_close(output[:, [0, 1, 3, 4]], unmasked[:, [0, 1, 3, 4]])
    with trace(attention, "heads") as seen:
        attention(x, x, x, attn_mask=given, need_weights=need_weights)
    assert (seen["heads"][:, :, 2] == 0).all()


def test_two_masks_that_together_hide_everything() -> None:
    model = build(ch, "TransformerDecoder")
    tgt, memory = sequence(TIME, False), sequence(SOURCE, False)
    first_only = torch.ones(BATCH, TIME, dtype=torch.bool)
    first_only[:, -1] = False  # with the causal order, only the last position sees anything
    outputs, grads = run(
        model,
        tgt,
        memory,
        tgt_mask=causal_mask(TIME),
        tgt_key_padding_mask=first_only,
        memory_key_padding_mask=torch.ones(BATCH, SOURCE, dtype=torch.bool),
    )
    assert all(each.isfinite().all() for each in [*outputs, *grads])


def test_float_masks_are_added_in_inference_too() -> None:
    theirs, ours = pair("TransformerEncoder", batch_first=True)
    src, bias = sequence(TIME, True), torch.randn(TIME, TIME)
    padding = torch.randn(BATCH, TIME)
    padding[:, -1] = -torch.inf
    for mask in (None, bias):
        with_gradients = theirs.eval()(src, mask=mask, src_key_padding_mask=padding)
        with torch.no_grad():
            got = ours.eval()(src, mask=mask, src_key_padding_mask=padding)
        check_close(got[:, :-1], with_gradients[:, :-1])  # the last position is padding


# --- errors ---


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("mode", ["train", "inference"])
def test_the_causal_hint_needs_a_mask(name: str, mode: str) -> None:
    module = build(ch, name, batch_first=True).train(mode == "train")
    x = sequence(TIME, True)
    call: Callable[[], Any] = {
        "MultiheadAttention": lambda: module(x, x, x, is_causal=True),
        "TransformerEncoderLayer": lambda: module(x, is_causal=True),
        "TransformerEncoder": lambda: module(x, is_causal=True),
        "TransformerDecoderLayer": lambda: module(x, x, memory_is_causal=True),
        "TransformerDecoder": lambda: module(x, x, tgt_is_causal=True),
        "Transformer": lambda: module(x, x, src_is_causal=True),
    }[name]
    with torch.set_grad_enabled(mode == "train"), pytest.raises(RuntimeError, match="no attn_mask") as caught:
        call()
    assert isinstance(caught.value, ClearheadError)


ONES = torch.ones(TIME, TIME, dtype=torch.bool).tril()
BAD_ATTENTION_CALLS: dict[str, dict[str, Any]] = {
    "2-D mask of a wrong size": {"attn_mask": ONES[:, 1:]},
    "3-D mask of a wrong batch": {"attn_mask": ONES.expand(BATCH, -1, -1)},
    "4-D mask": {"attn_mask": ONES[None, None]},
    "mask of ints": {"attn_mask": ONES.long()},
    "padding of a wrong size": {"key_padding_mask": torch.zeros(BATCH, TIME + 1, dtype=torch.bool)},
    "padding of a wrong batch": {"key_padding_mask": torch.zeros(1, TIME, dtype=torch.bool)},
    "padding without a batch": {"key_padding_mask": torch.zeros(TIME, dtype=torch.bool)},
    "padding of ints": {"key_padding_mask": torch.zeros(BATCH, TIME, dtype=torch.long)},
    "keys of a wrong width": {"key": torch.randn(BATCH, TIME, WIDTH - 1)},
    "queries of a wrong width": {"query": torch.randn(BATCH, TIME, WIDTH - 1)},
    "more values than keys": {"value": torch.randn(BATCH, TIME + 1, WIDTH)},
    "keys of another batch": {"key": torch.randn(2, TIME, WIDTH), "value": torch.randn(2, TIME, WIDTH)},
    "queries without a batch": {"query": torch.randn(TIME, WIDTH)},
    "too many dimensions": {"query": torch.randn(1, BATCH, TIME, WIDTH)},
}


@pytest.mark.parametrize("what", BAD_ATTENTION_CALLS)
def test_calls_that_do_not_fit(what: str) -> None:
    theirs, ours = pair("MultiheadAttention", batch_first=True)
    x = sequence(TIME, True)
    call = {"query": x, "key": x, "value": x, **BAD_ATTENTION_CALLS[what]}
    with pytest.raises((RuntimeError, AssertionError)) as expected:
        theirs(**call)
    with pytest.raises(InputError) as caught:
        ours(**call)
    assert isinstance(caught.value, expected.type)


def test_stacks_refuse_masks_of_ints() -> None:
    model, x = build(ch, "Transformer"), sequence(TIME, False)
    for name in ("src_mask", "tgt_mask", "memory_mask"):
        with pytest.raises(InputError, match="must be bool"):
            model(x, x, **{name: ONES.long()})
    for name in ("src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask"):
        with pytest.raises(InputError, match="must be bool"):
            model(x, x, **{name: torch.zeros(BATCH, TIME, dtype=torch.long)})


def test_padding_that_does_not_fit_in_inference() -> None:
    model = build(ch, "TransformerEncoder", batch_first=True).eval()
    with torch.no_grad(), pytest.raises(InputError, match=r"\(5,\)"):
        model(sequence(TIME, True), src_key_padding_mask=torch.zeros(TIME, dtype=torch.bool))


def test_the_errors_of_transformer_are_torchs() -> None:
    model = build(ch, "Transformer")
    with pytest.raises(RuntimeError, match="batch number"):
        model(sequence(TIME, False), sequence(TIME, False, batch=BATCH + 1))
    with pytest.raises(RuntimeError, match="feature number"):
        model(sequence(TIME, False, width=4), sequence(TIME, False, width=4))


def test_nested_tensors_are_refused() -> None:
    layer = build(ch, "TransformerEncoderLayer", batch_first=True).eval()
    nested = torch.nested.nested_tensor([torch.randn(2, WIDTH), torch.randn(3, WIDTH)])
    with torch.no_grad(), pytest.raises(InputError, match="padded"):
        layer(nested)


# --- dropout ---


@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_dropout_of_everything(name: str, norm_first: bool) -> None:
    """With p = 1 nothing is random: only what no dropout touches is left."""
    theirs, ours = pair(name, dropout=1.0, norm_first=norm_first)
    x = sequence(TIME, False)
    check_same(theirs.train(), ours.train(), *((x,) if name == "TransformerEncoderLayer" else (x, x)))


PLACES = {
    "TransformerEncoderLayer": ("self_attn", "dropout", "dropout1", "dropout2"),
    "TransformerDecoderLayer": ("self_attn", "multihead_attn", "dropout", "dropout1", "dropout2", "dropout3"),
}


@pytest.mark.parametrize("name, place", [(name, place) for name, places in PLACES.items() for place in places])
def test_each_dropout_acts_where_torchs_does(name: str, place: str) -> None:
    """One of them at p = 1, the rest at 0."""
    theirs, ours = pair(name)
    args = (sequence(TIME, False),) * (1 if name == "TransformerEncoderLayer" else 2)
    plain = ours.train()(*args)
    for module in (theirs.train(), ours):
        part = module.get_submodule(place)
        setattr(part, "p" if isinstance(part, nn.Dropout) else "dropout", 1.0)
    check_same(theirs, ours, *args)
    assert not torch.allclose(ours(*args), plain)
    torch.testing.assert_close(ours.eval()(*args), plain)


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_of_weights_keeps_their_mean(need_weights: bool) -> None:
    attention = build(ch, "MultiheadAttention", dropout=0.3, batch_first=True)
    x = torch.randn(1, TIME, WIDTH)
    many = x.expand(4000, -1, -1)
    with torch.no_grad():
        output, weights = attention.train()(many, many, many, need_weights=need_weights, average_attn_weights=False)
        wanted, wanted_weights = attention.eval()(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(output.mean(0), wanted[0], rtol=0, atol=0.03)
    assert output.std(0).min() > 0.01
    if need_weights:
        torch.testing.assert_close(weights.mean(0), wanted_weights[0], rtol=0, atol=0.03)
        assert (weights == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)


# --- parts of other makes ---


class Custom(nn.Module):
    """A layer of a user's own. It writes down what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(WIDTH, HEADS)
        self.calls: list[dict[str, Any]] = []

    def forward(self, *args: Tensor, **kwargs: Any) -> Tensor:
        self.calls.append(kwargs)
        return args[0] * 2 + sum(args[1:])


@pytest.mark.parametrize("name", ["TransformerEncoder", "TransformerDecoder"])
@pytest.mark.parametrize("mask", [None, "causal", "bool", "other"])
def test_custom_layers_are_called_as_torch_calls_them(name: str, mask: str | None) -> None:
    x = sequence(TIME, False)
    args = (x,) if name == "TransformerEncoder" else (x, x)
    masks = {"causal": causal_mask(TIME), "bool": ONES.logical_not(), "other": torch.randn(TIME, TIME)}
    call = {"mask" if name == "TransformerEncoder" else "tgt_mask": masks.get(mask or "")}
    if name == "TransformerEncoder":
        call["src_key_padding_mask"] = hidden("bool", BATCH, TIME)
    seen = []
    for library in (nn, ch):
        stack = getattr(library, name)(Custom(), 2, nn.LayerNorm(WIDTH))
        seen.append((stack(*args, **call), stack.layers[1].calls))
    torch.testing.assert_close(seen[0][0], seen[1][0])
    (expected,), (got,) = seen[0][1], seen[1][1]
    assert expected.keys() == got.keys()
    for key, value in expected.items():
        if isinstance(value, Tensor):
            torch.testing.assert_close(got[key], value)
        else:
            assert got[key] is value, key


@pytest.mark.parametrize("batch_first", [False, True])
def test_plain_torch_layers_in_our_stacks(batch_first: bool) -> None:
    for name in ("TransformerEncoder", "TransformerDecoder"):
        layer = build(nn, f"{name}Layer", batch_first=batch_first)
        theirs, ours = (getattr(library, name)(layer, 2, nn.LayerNorm(WIDTH)) for library in (nn, ch))
        assert type(ours.layers[0]) is type(layer) and ours.layers[0] is not layer
        x = sequence(TIME, batch_first)
        args, call = ((x,), {"src_key_padding_mask": left_aligned("bool")}) if "En" in name else ((x, x), {})
        check_same(theirs, ours, *args, **call)
        check_same_in_inference(theirs, ours, *args, **call)
        assert set(tap_points(ours)) == {"final.norm"}


def test_custom_encoder_and_decoder() -> None:
    encoder, decoder = build(nn, "TransformerEncoder"), build(nn, "TransformerDecoder")
    torch.manual_seed(5)
    ours = ch.Transformer(WIDTH, HEADS, custom_encoder=encoder, num_decoder_layers=1, dim_feedforward=12)
    assert ours.encoder is encoder and type(encoder) is nn.TransformerEncoder
    assert type(ours.decoder) is ch.TransformerDecoder
    torch.manual_seed(5)
    theirs = nn.Transformer(
        WIDTH, HEADS, custom_encoder=copy.deepcopy(encoder), num_decoder_layers=1, dim_feedforward=12
    )
    for key, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value), key
    x = sequence(TIME, False)
    check_close(ours.eval()(x, x), theirs.eval()(x, x))
    assert ch.Transformer(WIDTH, HEADS, 1, 1, custom_decoder=decoder).decoder is decoder


def test_subclasses_that_override_a_sublayer() -> None:
    class Quiet(ch.TransformerEncoderLayer):
        def _sa_block(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            return torch.zeros_like(x)

    layer = Quiet(WIDTH, HEADS, 12, 0.0, norm_first=True)
    x = sequence(TIME, False)
    torch.testing.assert_close(layer(x), x + layer._ff_block(layer.norm2(x)))


# --- glass walls ---

ATTENTION = ("query", "key", "value", "scores", "weights", "heads", "output")
LAYER = {
    "input",
    "output",
    "feedforward.hidden",
    "feedforward.output",
    *(f"attention.{a}" for a in ATTENTION),
}
CROSS = {f"cross_attention.{a}" for a in ATTENTION}


def names(prefix: str, parts: set[str]) -> set[str]:
    return {prefix + part for part in parts}


def test_names() -> None:
    assert set(tap_points(build(ch, "MultiheadAttention"))) == set(ATTENTION)
    assert set(tap_points(build(ch, "TransformerEncoderLayer"))) == LAYER
    assert set(tap_points(build(ch, "TransformerDecoderLayer"))) == LAYER | CROSS
    encoder = names("layers.0.", LAYER) | names("layers.1.", LAYER)
    decoder = encoder | names("layers.0.", CROSS) | names("layers.1.", CROSS)
    assert set(tap_points(build(ch, "TransformerEncoder", norm=False))) == encoder
    assert set(tap_points(build(ch, "TransformerDecoder"))) == decoder | {"final.norm"}
    both = names("encoder.", encoder | {"final.norm"}) | names("decoder.", decoder | {"final.norm"})
    assert set(tap_points(build(ch, "Transformer"))) == both


@pytest.mark.parametrize("layout", ["batch first", "time first", "no batch"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_every_name_is_seen_batch_first_and_changes_nothing(layout: str, norm_first: bool) -> None:
    first, batch = layout == "batch first", None if layout == "no batch" else BATCH
    model = build(ch, "Transformer", batch_first=first, norm_first=norm_first)
    src, tgt = sequence(SOURCE, first, batch), sequence(TIME, first, batch)
    masks = {
        "tgt_mask": causal_mask(TIME),
        "src_key_padding_mask": hidden("bool", *([batch] if batch else []), SOURCE),
    }
    fast = model(src, tgt, **masks)
    with trace(model, "**") as seen:
        explicit = model(src, tgt, **masks)
    check_close(explicit, fast)
    assert set(seen) == set(tap_points(model))

    n = batch or 1
    shown = {name: tuple(tensor.shape) for name, tensor in seen.items()}
    for part, time in (("encoder", SOURCE), ("decoder", TIME)):
        for name in ("input", "output", "attention.output", "feedforward.output"):
            assert shown[f"{part}.layers.1.{name}"] == (n, time, WIDTH), name
        assert shown[f"{part}.layers.1.feedforward.hidden"] == (n, time, 12)
        assert shown[f"{part}.final.norm"] == (n, time, WIDTH)
        for name in ("query", "key", "value", "heads"):
            assert shown[f"{part}.layers.1.attention.{name}"] == (n, HEADS, time, WIDTH // HEADS), name
        assert shown[f"{part}.layers.1.attention.weights"] == (n, HEADS, time, time)
    assert shown["decoder.layers.0.cross_attention.key"] == (n, HEADS, SOURCE, WIDTH // HEADS)
    assert shown["decoder.layers.0.cross_attention.scores"] == (n, HEADS, TIME, SOURCE)

    def batched(x: Tensor) -> Tensor:
        return x[None] if layout == "no batch" else x if first else x.transpose(0, 1)

    assert torch.equal(seen["encoder.layers.0.input"], batched(src))
    assert torch.equal(seen["decoder.layers.0.input"], batched(tgt))
    assert torch.equal(seen["decoder.final.norm"], batched(explicit))
    assert torch.equal(seen["encoder.layers.1.input"], seen["encoder.layers.0.output"])
    last = model.decoder.layers[1]
    hidden_layer = seen["decoder.layers.1.feedforward.hidden"]
    assert hidden_layer.min() == 0  # behind the relu
    assert torch.equal(seen["decoder.layers.1.feedforward.output"], last.linear2(hidden_layer))
    weights = seen["decoder.layers.0.attention.weights"]
    torch.testing.assert_close(weights.sum(-1), torch.ones(n, HEADS, TIME))
    assert (weights.triu(1) == 0).all()


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", [name for name in sorted(LAYER | CROSS) if not name.endswith(".key")])
def test_replacing(name: str, batch_first: bool) -> None:
    """Changing sequence 0 at the last position changes that, and nothing of the other sequences."""
    model = build(ch, "TransformerDecoder", layers=1, norm=False, batch_first=batch_first)
    tgt, memory = sequence(TIME, batch_first), sequence(SOURCE, batch_first)

    def change(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor[0, ..., -1, :] += torch.arange(tensor.shape[-1])
        return tensor

    plain = model(tgt, memory)
    with trace(model, replace={f"layers.0.{name}": change}):
        changed = model(tgt, memory)
    moved = (changed - plain).abs().amax(-1)
    moved = moved if batch_first else moved.T
    assert moved[0, -1] > 1e-3
    torch.testing.assert_close(moved[1:], torch.zeros(BATCH - 1, TIME), rtol=0, atol=1e-6)


def test_replaced_weights_are_the_ones_returned() -> None:
    attention = build(ch, "MultiheadAttention", batch_first=True)
    x = sequence(TIME, True)
    even = torch.full((BATCH, HEADS, TIME, TIME), 1 / TIME)
    with trace(attention, "value", replace={"weights": even}) as seen:
        output, weights = attention(x, x, x)
    assert torch.equal(weights, even.mean(1))
    wanted = attention.out_proj(seen["value"].mean(2).flatten(1))[:, None].expand(-1, TIME, -1)
    torch.testing.assert_close(output, wanted)


def test_the_causal_hint_takes_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[bool, bool]] = []
    fused = F.scaled_dot_product_attention

    def spy(*args: Any, **kwargs: Any) -> Tensor:
        calls.append((kwargs["is_causal"], kwargs["attn_mask"] is None))
        return fused(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    x = sequence(TIME, False)
    model = build(ch, "TransformerEncoder")
    for hint in (True, None):  # said, and found
        model(x, mask=causal_mask(TIME), is_causal=hint)
    assert calls == [(True, True)] * 4
    calls.clear()
    model(x, mask=causal_mask(TIME), is_causal=False)
    model(x, mask=causal_mask(TIME), src_key_padding_mask=hidden("bool", BATCH, TIME), is_causal=True)
    assert calls == [(False, False)] * 4
    calls.clear()
    with trace(model, "layers.0.attention.weights"):  # only the watched layer leaves the fast path
        model(x)
    assert calls == [(False, True)]


# --- compiled, copied, pickled ---


def test_compiled_as_one_graph() -> None:
    model = build(ch, "Transformer", layers=1, batch_first=True).eval()
    src, tgt = sequence(SOURCE, True), sequence(TIME, True)
    graphs: list[str] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph.code)
        return graph.forward

    call = {
        "src_key_padding_mask": torch.arange(SOURCE).expand(BATCH, -1) >= 2,
        "tgt_mask": causal_mask(TIME),
        "tgt_is_causal": True,
    }
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend=keep)
    wanted = model(src, tgt, **call)
    torch.testing.assert_close(compiled(src, tgt, **call), wanted)
    del call["tgt_is_causal"]  # a graph cannot find out that a mask is causal; it must not break for that
    torch.testing.assert_close(compiled(src, tgt, **call), wanted)
    with torch.no_grad():  # nor can it look for padding to take off
        torch.testing.assert_close(compiled(src, tgt, **call), wanted)
    assert len(graphs) == 3
    assert graphs[0].count("scaled_dot_product_attention") == 3 and "softmax" not in graphs[0]
    with trace(model, "decoder.layers.0.attention.weights") as seen:
        torch.testing.assert_close(compiled(src, tgt, **call), wanted)
    assert seen["decoder.layers.0.attention.weights"].shape == (BATCH, HEADS, TIME, TIME)
    compiled(src, tgt, **call)
    assert len(graphs) == 3


def test_compiled_with_gradients() -> None:
    model = build(ch, "TransformerEncoder", layers=1)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x, mask = sequence(TIME, False), hidden("float", TIME, TIME)
    expected, got = run(model, x, mask), run(compiled, x, mask)
    for wanted, given in zip([*expected[0], *expected[1]], [*got[0], *got[1]], strict=True):
        torch.testing.assert_close(given, wanted)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies(how: Callable[[nn.Module], nn.Module]) -> None:
    model = build(ch, "Transformer", layers=1)
    twin = how(model)
    assert [type(m) for m in twin.modules()] == [type(m) for m in model.modules()]
    x = sequence(TIME, False)
    assert torch.equal(twin(x, x), model(x, x))
    with trace(twin, "encoder.layers.0.attention.weights") as seen:
        model(x, x)
        assert not seen
        twin(x, x)
    assert set(seen) == {"encoder.layers.0.attention.weights"}
