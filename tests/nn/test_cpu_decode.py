"""A layer in one call of C against the same layer in torch: many shapes, whole models, and when it must stand back."""

import copy
import gc
import pickle
import platform
import random
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from clearhead.models import family
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, RMSNorm, Rotary, trace
from clearhead.nn.fast import cpu_decode, cpu_kernels, cpu_layer
from clearhead.nn.fast.quantized import QuantizedLinear, QuantizedMatrix, quantize_
from clearhead.nn.kv_cache import BLOCK, KVCache, LayerKVCache, StaticKVCache
from clearhead.nn.linear import Linear
from clearhead.nn.masks import BoundMask

pytestmark = pytest.mark.skipif(cpu_kernels.load() is None, reason=f"no native kernels: {cpu_kernels.why_not()}")

LIBRARIES = {"this processor": (), "any processor": ("-DPLAIN",)}
if platform.machine() in ("x86_64", "AMD64"):
    LIBRARIES["AVX2 at most"] = ("-mno-avx512f",)

KINDS = ["fp32", "int8", "int4"]


class Spy:
    """Counts the layers that ran in C."""

    def __init__(self, call):
        self.call, self.count = call, 0

    def __call__(self, layers, caches, count, *rest):
        self.count += count
        return self.call(layers, caches, count, *rest)


@pytest.fixture
def spy(monkeypatch):
    spy = Spy(cpu_kernels.loaded.layers)
    monkeypatch.setattr(cpu_kernels.loaded, "layers", spy)
    return spy


def make(
    heads=2,
    head_dim=16,
    kv_heads=None,
    width=32,
    hidden=64,
    kind="fp32",
    fused=True,
    bias=True,
    act="gelu_new",
    **options,
) -> Block:
    block = Block(
        Attention(width, heads, head_dim=head_dim, kv_heads=kv_heads, fused=fused, bias=bias, out_bias=True),
        FeedForward(width, hidden, act),
        attention_norm=LayerNorm(width),
        feedforward_norm=LayerNorm(width, eps=1e-6),
        **options,
    ).eval()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3 if parameter.ndim == 1 else 1.5 * parameter.shape[1] ** -0.5)
    if kind != "fp32":
        quantize_(block, kind)
    return block


def plainly(monkeypatch, function):
    """The same without native code: quantised matrices are unpacked first."""
    with monkeypatch.context() as patch:
        patch.setattr(cpu_kernels, "loaded", None)
        return function()


def filled(block: Block, rows: int, length: int, **options) -> LayerKVCache:
    """A cache that holds `length` positions; the same ones every time."""
    cache = LayerKVCache(BLOCK, **options)
    x = torch.randn(rows, length, width_of(block), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        block(x, BoundMask(is_causal=length > 1), cache=cache, position_ids=torch.arange(length)[None])
    return cache


def width_of(block: Block) -> int:
    return block.attention.output.out_features


def assert_same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


def compare(block, monkeypatch, rows=2, length=5, steps=3, between=lambda cache, n: None, **options) -> None:
    """Some steps both ways: the same outputs, the same cache."""
    fast, plain = filled(block, rows, length, **options), filled(block, rows, length, **options)
    for n in range(steps):
        x = torch.randn(rows, 1, width_of(block))
        with torch.no_grad():
            found = block(x, BoundMask(), cache=fast)
            wanted = plainly(monkeypatch, lambda x=x: block(x, BoundMask(), cache=plain))
        assert_same(found, wanted)
        between(fast, n)
        between(plain, n)
    assert (fast.length, fast.dropped, fast.capacity) == (plain.length, plain.dropped, plain.capacity)
    assert_same(fast._keys[:, :, : fast.held], plain._keys[:, :, : plain.held])
    assert_same(fast._values[:, :, : fast.held], plain._values[:, :, : plain.held])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_random_shapes(library, kind, placement, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "loaded", cpu_kernels.open_library(LIBRARIES[library]))
    spy = Spy(cpu_kernels.loaded.layers)
    monkeypatch.setattr(cpu_kernels.loaded, "layers", spy)
    pick = random.Random(kind + placement)
    for n in range(12):
        kv_heads = pick.choice([1, 2, 3])
        block = make(
            heads=kv_heads * pick.choice([1, 1, 2]),
            kv_heads=kv_heads,
            head_dim=pick.choice([1, 5, 8, 16, 40, 64, 70]),
            width=pick.choice([4, 33, 48, 70]),
            hidden=pick.choice([3, 32, 101]),
            fused=pick.random() < 0.5,
            bias=pick.random() < 0.5,
            act=pick.choice(["gelu_new", "gelu", "relu", "silu"]),
            kind=kind,
            placement=placement,
        )
        block.attention.scale = pick.choice([1.0, 0.2])
        compare(block, monkeypatch, rows=1 + n % 8, length=pick.choice([1, 3, 16, 60, 150]))
    assert spy.count == 36


@pytest.mark.parametrize("kind", KINDS)
def test_big_enough_for_several_threads(kind, spy, monkeypatch):
    for rows, placement in ((1, "pre"), (3, "post"), (8, "pre")):
        block = make(heads=5, head_dim=37, width=200, hidden=515, kind=kind, placement=placement)
        assert rows * 200 * 515 > cpu_kernels.SMALL
        before = torch.get_num_threads()
        torch.set_num_threads(3)
        try:
            compare(block, monkeypatch, rows=rows, length=70)
        finally:
            torch.set_num_threads(before)
    assert spy.count == 9


def test_the_cache_grows_and_slides(spy, monkeypatch):
    compare(make(), monkeypatch, length=1, steps=4 * BLOCK)
    assert 4 * BLOCK - 5 < spy.count < 4 * BLOCK  # but for the few steps in which the cache made room
    spy.count = 0
    compare(make(), monkeypatch, length=3, steps=5 * BLOCK, window=7)
    assert 5 * BLOCK - 9 < spy.count < 5 * BLOCK


def test_beams_change_places_and_positions_are_forgotten(spy, monkeypatch):
    order = torch.tensor([2, 2, 0, 1])
    moves = {
        1: lambda cache: cache.reorder(order),
        3: lambda cache: cache.reorder(order, 6),
        4: lambda cache: cache.crop(-3),
    }
    compare(make(), monkeypatch, rows=4, steps=8, between=lambda cache, n: moves.get(n, lambda _: None)(cache))
    assert spy.count == 8


def test_extreme_activations_and_broken_numbers(spy, monkeypatch):
    for act in ("gelu_new", "gelu", "relu", "silu"):
        block = make(act=act)
        with torch.no_grad():
            block.feedforward.up.weight.mul_(30)
        compare(block, monkeypatch)
    block = make()
    cache = filled(block, 2, 5)
    x = torch.randn(2, 1, 32)
    x[1, 0, 3] = torch.nan
    with torch.no_grad():
        y = block(x, BoundMask(), cache=cache)
    assert bool(y[0].isfinite().all()) and bool(y[1].isnan().all())
    assert spy.count == 13


def test_norms_without_weights(spy, monkeypatch):
    block = make()
    block.attention_norm = LayerNorm(32, elementwise_affine=False)
    block.feedforward_norm = LayerNorm(32, bias=False)
    compare(block, monkeypatch)
    assert spy.count == 3


# ---- what the plain path must do ----


def refused(block, spy, monkeypatch, x=None, mask=None, **options):
    """Run a step; nothing ran in C, and the numbers are those of a run without native code."""
    x = torch.randn(2, 1, 32) if x is None else x
    mask = BoundMask() if mask is None else mask
    spy.count = 0
    with torch.no_grad():
        found = block(x, mask, cache=filled(block, x.shape[0], 5), **options)
        ran = spy.count
        other = filled(block, x.shape[0], 5)
        wanted = plainly(monkeypatch, lambda: block(x, mask, cache=other, **options))
    assert ran == 0
    assert_same(found, wanted)
    return found


def test_a_trace_sees_inside(spy, monkeypatch):
    block = make()
    with trace(block, "attention.weights") as seen:
        refused(block, spy, monkeypatch)
    assert seen["attention.weights"].shape == (2, 2, 1, 6)
    with trace(block, replace={"attention.output": torch.zeros_like}), torch.no_grad():
        blind = block(torch.ones(2, 1, 32), BoundMask(), cache=filled(block, 2, 5))
    with torch.no_grad():
        assert not torch.allclose(blind, block(torch.ones(2, 1, 32), BoundMask(), cache=filled(block, 2, 5)))


def test_gradients(spy):
    block = make()
    x = torch.randn(2, 1, 32, requires_grad=True)
    block(x, BoundMask(), cache=filled(block, 2, 5)).sum().backward()
    assert x.grad is not None and block.feedforward.up.weight.grad is not None
    assert spy.count == 0


def test_training(spy):
    block = make(dropout=0.5).train()
    x, cache = torch.randn(1, 1, 32), filled(block.eval(), 1, 5)
    with torch.no_grad():
        block.train()
        outs = []
        for _ in range(2):
            cache.crop(5)
            outs.append(block(x, BoundMask(), cache=cache))
        assert not torch.equal(*outs)
        block.eval()
        block.attention.train()  # a part alone
        cache.crop(5)
        block(x, BoundMask(), cache=cache)
    assert spy.count == 0


@pytest.mark.parametrize("part", ["attention", "attention.qkv", "feedforward.activation", "feedforward_norm"])
def test_hooks(part, spy, monkeypatch):
    block, heard = make(), []
    hook = block.get_submodule(part).register_forward_hook(lambda *_: heard.append(1))
    refused(block, spy, monkeypatch)
    assert heard
    hook.remove()
    block.get_submodule(part).register_forward_pre_hook(lambda *_: heard.append(1))
    refused(block, spy, monkeypatch)
    compare(make(), monkeypatch)
    assert spy.count == 3


def test_hooks_on_everything(spy, monkeypatch):
    heard = []
    hook = nn.modules.module.register_module_forward_hook(lambda *_: heard.append(1))
    try:
        refused(make(), spy, monkeypatch)
    finally:
        hook.remove()
    assert heard


def test_masks(spy, monkeypatch):
    visible = torch.tensor([1, 0, 1, 1, 1, 1]).bool().view(1, 1, 1, 6)
    block, x = make(), torch.randn(2, 1, 32)
    hidden = refused(block, spy, monkeypatch, x, BoundMask(visible=visible))
    shifted = refused(block, spy, monkeypatch, x, BoundMask(added=visible.float()))
    biased = refused(block, spy, monkeypatch, x, bias=visible.float())
    assert_same(shifted, biased)
    assert not torch.allclose(hidden, shifted)


def test_other_parts(spy, monkeypatch):
    changes = [
        lambda block: setattr(block.attention, "rotary", Rotary(16)),
        lambda block: setattr(block.attention, "forward", lambda x, *_, **__: x),
        lambda block: setattr(block.attention, "attend", lambda q, *_: q),
        lambda block: setattr(block, "attention_norm", RMSNorm(32)),
        lambda block: setattr(block, "feedforward", FeedForward(32, 64, gated=True)),
        lambda block: setattr(block, "feedforward", FeedForward(32, 64, "tanh")),
        lambda block: setattr(block.feedforward, "down", nn.Linear(64, 32)),
        lambda block: setattr(block.feedforward.activation, "function", nn.ReLU()),
        lambda block: parametrize.register_parametrization(block.feedforward.up, "weight", nn.Tanh()),
        lambda block: setattr(block, "placement", "parallel"),
    ]
    for change in changes:
        block = make()
        change(block)
        refused(block.eval(), spy, monkeypatch, position_ids=torch.tensor([[5]]))

    class Louder(Block):
        def _drop(self, x):
            return 2 * x

    block = make()
    block.__class__ = Louder
    refused(block, spy, monkeypatch)


def test_other_shapes_and_types(spy, monkeypatch):
    refused(make(), spy, monkeypatch, torch.randn(9, 1, 32))
    refused(make(), spy, monkeypatch, torch.randn(2, 1, 64)[..., ::2])
    block = make().double()
    x, cache = torch.randn(2, 1, 32).double(), filled_double(block)
    with torch.no_grad():
        assert block(x, BoundMask(), cache=cache).dtype is torch.float64
        with torch.autocast("cpu", torch.bfloat16):
            make()(x.float(), BoundMask(), cache=filled(make(), 2, 5))
    assert spy.count == 0


def filled_double(block: Block) -> LayerKVCache:
    cache = LayerKVCache(BLOCK)
    with torch.no_grad():
        block(torch.randn(2, 5, 32).double(), BoundMask(is_causal=True), cache=cache)
    return cache


def test_parameters_may_change_at_any_time(spy, monkeypatch):
    block = make()
    compare(block, monkeypatch)
    block.feedforward.up = FeedForward(32, 64).up
    block.attention.scale = 0.01
    compare(block, monkeypatch)
    quantize_(block, "int8")
    compare(block, monkeypatch)
    assert spy.count == 9


def test_a_cache_of_fixed_shape(spy):
    block, position = make(), torch.zeros(1, dtype=torch.long)
    cache = StaticKVCache(1, 8, position).layers[0]
    with torch.no_grad():
        block(torch.randn(2, 3, 32), BoundMask(is_causal=True), cache=cache)
        block(torch.randn(2, 1, 32), BoundMask(), cache=cache)
    assert spy.count == 0


def test_compiled(spy, monkeypatch):
    block = make()
    cache, x = filled(block, 2, 5), torch.randn(2, 1, 32)
    with torch.no_grad():
        found = torch.compile(block, backend="eager")(x, BoundMask(), cache=cache)
        assert spy.count == 0
        other = filled(block, 2, 5)
        assert_same(found, plainly(monkeypatch, lambda: block(x, BoundMask(), cache=other)))


def test_without_memory_the_plain_path_runs(monkeypatch):
    block, x = make(), torch.randn(2, 1, 32)
    with torch.no_grad():
        wanted = block(x, BoundMask(), cache=filled(block, 2, 5))
        monkeypatch.setattr(cpu_kernels.loaded, "layers", lambda *facts: 0)
        cache = filled(block, 2, 5)
        assert_same(block(x, BoundMask(), cache=cache), wanted)
    assert cache.length == 6


def test_the_struct_has_the_size_that_c_expects():
    assert cpu_layer.LAYOUT.size == 8 * (6 * 6 + 2 * 3 + 6 + 1)


# ---- whole models ----

MODELS = {
    "gpt2": {},
    "gpt3": {"band": 300},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "openai-gpt": {},
    "ctrl": {"intermediate_size": 70},
}


@pytest.mark.parametrize("kind", ["fp32", "int8", "int4"])
@pytest.mark.parametrize("name", MODELS)
def test_models_write_the_same(name, kind, spy, monkeypatch):
    torch.manual_seed(3)
    chosen = family(name)
    config = chosen.config(
        vocab_size=97, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
        **MODELS[name],
    )  # fmt: skip
    model = chosen.make(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.3)
    if kind != "fp32":
        quantize_(model, kind)
    ids = torch.randint(1, 97, (2, BLOCK - 6))  # the cache grows on the way
    for options in ({}, {"num_beams": 3}):
        spy.count = 0
        found = model.generate(ids, max_new_tokens=20, eos_token_id=[], **options)
        assert spy.count >= 2 * 15  # nearly every step of both layers
        wanted = plainly(
            monkeypatch, lambda options=options: model.generate(ids, max_new_tokens=20, eos_token_id=[], **options)
        )
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(wanted))


def test_a_whole_cache_with_padding_takes_the_plain_path(spy, monkeypatch):
    chosen = family("gpt2")
    config = chosen.config(vocab_size=97, hidden_size=48, num_hidden_layers=2, num_attention_heads=4)
    model = chosen.make(config).eval()
    ids, mask = torch.randint(1, 97, (2, 5)), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])

    def run() -> torch.Tensor:
        cache = KVCache(2)
        with torch.no_grad():
            model(ids[:, :4], attention_mask=mask[:, :4], past_key_values=cache)
            return model(ids[:, 4:], attention_mask=mask, past_key_values=cache).logits

    found = run()
    assert spy.count == 0
    assert_same(found, plainly(monkeypatch, run))


# ---- a plan is remembered, and noticed to be out of date ----


def small_gpt2(layers: int = 2, width: int = 48):
    chosen = family("gpt2")
    config = chosen.config(vocab_size=97, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4)
    model = chosen.make(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.3)
    return model


def transpose(linear: nn.Module) -> None:
    """The transpose of a square matrix, at the same address."""
    linear.weight.data = linear.weight.data.t()


def swap(layers: nn.ModuleList) -> None:
    layers[0], layers[1] = layers[1], layers[0]


def clone(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data * 1.5


CHANGES = {  # what may happen between two steps: the change, and whether C may still do the step
    "nothing": (lambda stack: None, True),
    "values in place": (lambda stack: stack.layers[1].feedforward.up.weight.data.mul_(1.5), True),
    "values elsewhere": (lambda stack: clone(stack.layers[1].feedforward.up.weight), True),
    "a bias elsewhere": (lambda stack: clone(stack.layers[1].attention.output.bias), True),
    "a norm elsewhere": (lambda stack: clone(stack.layers[0].feedforward_norm.weight), True),
    "transposed": (lambda stack: transpose(stack.layers[1].attention.output), False),
    "another parameter": (
        lambda stack: setattr(stack.layers[1].feedforward.down, "bias", nn.Parameter(torch.randn(48))), True
    ),
    "no bias": (lambda stack: setattr(stack.layers[1].feedforward.down, "bias", None), True),
    "another matrix": (lambda stack: setattr(stack.layers[1].feedforward, "down", FeedForward(48, 192).down), True),
    "another activation": (
        lambda stack: setattr(stack.layers[1].feedforward.activation, "function", torch.nn.functional.relu), True
    ),
    "an activation that is a module": (
        lambda stack: setattr(stack.layers[1].feedforward.activation, "function", nn.ReLU()), False
    ),
    "another scale": (lambda stack: setattr(stack.layers[1].attention, "scale", 0.9), True),
    "another eps": (lambda stack: setattr(stack.layers[1].attention_norm, "eps", 0.5), True),
    "another placement": (lambda stack: setattr(stack.layers[1], "placement", "post"), True),
    "another order": (lambda stack: swap(stack.layers), True),
    "rounded": (lambda stack: quantize_(stack, "int8"), True),
    "rounded by hand": (
        lambda stack: setattr(stack.layers[0].feedforward, "down", rounded(stack.layers[0].feedforward.down)), True
    ),
    "another layer": (lambda stack: stack.layers.__setitem__(1, copy.deepcopy(stack.layers[0])), True),
    "an unknown norm": (lambda stack: setattr(stack.layers[1], "attention_norm", RMSNorm(48)), False),
    "another forward": (lambda stack: setattr(stack.layers[1].attention.output, "forward", lambda x: 2 * x), False),
    "a layer's other forward": (lambda stack: setattr(stack.layers[1], "forward", lambda x, *_, **__: 2 * x), False),
    "another class": (lambda stack: setattr(stack.layers[1].attention.output, "__class__", Doubled), False),
    "a parametrised weight": (
        lambda stack: parametrize.register_parametrization(stack.layers[1].feedforward.up, "weight", nn.Tanh()), False
    ),
    "half precision in one place": (lambda stack: stack.layers[1].feedforward.double(), None),
}  # fmt: skip


class Doubled(Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def rounded(linear: nn.Module) -> QuantizedLinear:
    return QuantizedLinear(QuantizedMatrix(linear.weight, "int4"), linear.bias)


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_two_steps_is_noticed(change, spy, monkeypatch):
    make_it, native_still = CHANGES[change]

    def write() -> list[torch.Tensor]:
        torch.manual_seed(5)
        model, cache, seen = small_gpt2(), KVCache(2), []
        with torch.no_grad():
            model(torch.arange(5)[None], past_key_values=cache)
            for n in range(4):
                if n == 2:
                    spy.count = 0
                    make_it(model.stack)
                seen.append(model(torch.tensor([[n + 7]]), past_key_values=cache).logits)
        return seen

    if native_still is None:  # torch has something to say about it, and so must we
        with pytest.raises(RuntimeError):
            write()
        return
    found = write()
    assert spy.count == (4 if native_still else 0) or (not native_still and spy.count == 2)  # the other layer, alone
    for ours, wanted in zip(found, plainly(monkeypatch, write), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max()))


@pytest.mark.parametrize("part", ["", "attention", "attention.qkv", "feedforward.activation", "feedforward_norm"])
@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_whoever_begins_to_listen_is_told(part, kind, spy):
    model, cache, heard = small_gpt2(), KVCache(2), []
    with torch.no_grad():
        model(torch.arange(5)[None], past_key_values=cache)
        model(torch.tensor([[7]]), past_key_values=cache)
        assert spy.count == 2
        hook = getattr(model.stack.layers[1].get_submodule(part), kind)(lambda *_: heard.append(1))
        model(torch.tensor([[7]]), past_key_values=cache)
        assert heard == [1]
        hook.remove()
        spy.count = 0
        model(torch.tensor([[7]]), past_key_values=cache)
        assert heard == [1] and spy.count == 2
        with trace(model, "layers.1.attention.weights") as seen:
            model(torch.tensor([[7]]), past_key_values=cache)
        assert seen["layers.1.attention.weights"].shape == (1, 4, 1, 9) and spy.count == 2


def test_all_layers_take_one_call(spy, monkeypatch):
    model, calls = small_gpt2(3), []
    monkeypatch.setattr(cpu_kernels.loaded, "layers", lambda *facts: calls.append(facts[2]) or spy(*facts))
    model.generate(torch.arange(5)[None], max_new_tokens=4, eos_token_id=[])
    assert calls == [3, 3, 3]


def test_a_plan_dies_with_its_model_and_is_no_part_of_it(spy):
    model = small_gpt2()
    names = list(model.state_dict())
    model.generate(torch.arange(5)[None], max_new_tokens=3, eos_token_id=[])
    assert spy.count == 4 and model.stack in cpu_decode._plans
    assert list(model.state_dict()) == names
    twin = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    with torch.no_grad():
        twin.stack.layers[0].feedforward.up.weight.mul_(2)
    prompt = torch.arange(5)[None]
    ours, other = (one.generate(prompt, max_new_tokens=9, eos_token_id=[]) for one in (model, twin))
    assert not torch.equal(torch.as_tensor(ours), torch.as_tensor(other))
    gone = [weakref.ref(model.stack), weakref.ref(model.stack.layers[0]), weakref.ref(twin.stack)]
    del model, twin, ours, other
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
    alone = make()
    with torch.no_grad():
        alone(torch.randn(2, 1, 32), BoundMask(), cache=filled(alone, 2, 5))
    gone = weakref.ref(alone)
    assert alone in cpu_decode._plans
    del alone
    gc.collect()
    assert gone() is None


def test_two_threads_share_a_model(spy):
    model, prompts = small_gpt2(), [torch.tensor([[n, n + 1, n + 2]]) for n in range(4)]
    wanted = [torch.as_tensor(model.generate(p, max_new_tokens=30, eos_token_id=[])) for p in prompts]
    found: dict[int, torch.Tensor] = {}

    def write(n: int) -> None:
        found[n] = torch.as_tensor(model.generate(prompts[n], max_new_tokens=30, eos_token_id=[]))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[n], wanted[n]) for n in range(4))
