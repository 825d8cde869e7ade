"""The key/value cache: cached steps equal uncached ones, in memory that stays where it is."""

import pytest
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.models import Model, family
from clearhead.nn import Attention, BoundMask, KVCache, LayerKVCache, Mask, RelativeKeys, Rotary
from clearhead.nn.kv_cache import BLOCK

HEADS, HEAD_DIM = 3, 4
SMALL = {
    "vocab_size": 29,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "max_position_embeddings": 200,
}


def small(name: str, task: str | None = None, **more) -> Model:
    torch.manual_seed(0)
    chosen = family(name)
    model = chosen.make(chosen.config(**{**SMALL, **more}), task)
    for parameter in model.parameters():  # wide weights: a wrong key must show in the logits
        parameter.data.normal_(std=0.3)
    return model


DECODERS = {
    "gpt2": lambda: small("gpt2"),
    "gpt2 with cross-attention": lambda: small("gpt2", add_cross_attention=True),
    "gpt3 with a band": lambda: small("gpt3", band=5),
    "bert decoder": lambda: small("bert", "causal-lm", is_decoder=True, intermediate_size=24),
    "bert decoder, relative positions": lambda: small(
        "bert",
        "causal-lm",
        is_decoder=True,
        add_cross_attention=True,
        position_embedding_type="relative_key_query",
        intermediate_size=24,
    ),
}


def new_keys(length: int, batch: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(seed)
    key, value = torch.randn(2, batch, HEADS, length, HEAD_DIM, generator=drawn)
    return key, value


# --- one layer's cache -------------------------------------------------------------------------------------------


def test_append_gives_back_everything_so_far():
    cache, keys, values = LayerKVCache(BLOCK), [], []
    for n, length in enumerate((3, 1, 7, 1)):
        key, value = new_keys(length, seed=n)
        keys.append(key)
        values.append(value)
        got_key, got_value = cache.append(key, value)
        assert torch.equal(got_key, torch.cat(keys, 2)) and torch.equal(got_value, torch.cat(values, 2))
        assert cache.length == sum(k.shape[2] for k in keys)


def test_memory_stays_where_it_is_while_there_is_room():
    cache = LayerKVCache(BLOCK)
    cache.append(*new_keys(3))
    held = [t.data_ptr() for t in cache.append(*new_keys(1))]
    for _ in range(BLOCK - 4):
        assert [t.data_ptr() for t in cache.append(*new_keys(1))] == held
    assert cache.length == cache.capacity == BLOCK
    assert [t.data_ptr() for t in cache.append(*new_keys(1))] != held  # only now is it full
    assert cache.length == BLOCK + 1


def test_growth_keeps_what_was_written_and_doubles_the_room():
    cache, parts, rooms = LayerKVCache(1), [], set()
    for n in range(4 * BLOCK + 5):
        key, value = new_keys(1, batch=1, seed=n)
        parts.append(key)
        got, _ = cache.append(key, value)
        rooms.add(cache.capacity)
    assert torch.equal(got, torch.cat(parts, 2))
    assert sorted(rooms) == [BLOCK, 2 * BLOCK, 4 * BLOCK, 8 * BLOCK]  # a few growths, not one per block


@pytest.mark.parametrize("capacity,room", [(1, BLOCK), (BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK), (3 * BLOCK, 3 * BLOCK)])
def test_room_is_set_aside_in_blocks(capacity, room):
    cache = LayerKVCache(capacity)
    assert cache.capacity == 0
    cache.append(*new_keys(1))
    assert cache.capacity == room


def test_a_long_first_call_gets_the_room_it_needs():
    cache = LayerKVCache(1)
    cache.append(*new_keys(BLOCK + 2))
    assert cache.capacity == 2 * BLOCK


def test_crop_forgets_the_end_and_writes_over_it():
    cache = KVCache(2)
    first, then = new_keys(5), new_keys(2, seed=1)
    for layer in cache.layers:
        layer.append(*first)
    cache.crop(9)
    assert cache.length == 5
    cache.crop(3)
    assert cache.length == cache.get_seq_length() == 3
    for layer in cache.layers:
        key, value = layer.append(*then)
        assert torch.equal(key, torch.cat((first[0][:, :, :3], then[0]), 2))
        assert torch.equal(value, torch.cat((first[1][:, :, :3], then[1]), 2))


def test_a_negative_crop_never_leaves_a_negative_length():
    """transformers' caches read it as "drop the last n"; to refuse it is as good, to break is not."""
    cache = KVCache(1)
    cache.layers[0].append(*new_keys(5))
    try:
        cache.crop(-2)
    except InputError:
        assert cache.length == 5
    else:
        assert cache.length == 3


def test_select_reorders_drops_and_repeats_rows():
    cache = KVCache(1)
    layer = cache.layers[0]
    key, value = new_keys(4, batch=3)
    layer.append(key, value)
    layer.memory = new_keys(6, batch=3, seed=1)
    memory = layer.memory
    rows = torch.tensor([2, 0, 0, 2, 1])
    cache.reorder(rows)
    more = new_keys(1, batch=5, seed=2)
    got_key, got_value = layer.append(*more)
    assert torch.equal(got_key, torch.cat((key[rows], more[0]), 2))
    assert torch.equal(got_value, torch.cat((value[rows], more[1]), 2))
    assert torch.equal(layer.memory[0], memory[0][rows]) and torch.equal(layer.memory[1], memory[1][rows])


def test_bytes_count_what_is_held():
    cache = KVCache(2)
    assert cache.nbytes == 0 and cache.length == 0
    for layer in cache.layers:
        layer.append(*new_keys(3))
    cache.layers[0].memory = new_keys(7)
    room = 2 * 2 * 2 * HEADS * BLOCK * HEAD_DIM * 4  # layers, k and v, batch
    assert cache.nbytes == room + 2 * 2 * HEADS * 7 * HEAD_DIM * 4
    assert repr(cache).startswith("KVCache(3 positions")


def test_a_copy_goes_its_own_way():
    cache = KVCache(1)
    cache.layers[0].append(*new_keys(3))
    other = cache.copy()
    key, value = new_keys(1)
    other.layers[0].append(key, value)
    assert (cache.length, other.length) == (3, 4)
    own, _ = cache.layers[0].append(key + 1, value + 1)
    assert torch.equal(own[:, :, 3:], key + 1) and torch.equal(other.layers[0]._keys[:, :, 3:4], key)


# --- attention over a cache --------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [[1] * 9, [4, 1, 1, 3], [2, 7]])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("scheme", ["none", "rotary", "relative", "relative with key", "shared key heads"])
def test_attention_in_pieces_equals_attention_at_once(scheme, window, chunks):
    torch.manual_seed(0)
    options = {
        "none": {},
        "rotary": {"rotary": Rotary(6)},
        "relative": {"relative": RelativeKeys(4, 6)},
        "relative with key": {"relative": RelativeKeys(4, 6, with_key=True)},
        "shared key heads": {"kv_heads": 2, "fused": True},
    }
    layer, x = Attention(24, 4, **options[scheme]), torch.randn(2, 9, 24)
    mask, positions = Mask(causal=True, window=window), torch.arange(9)[None]
    want = layer(x, mask.bind(9, 9), position_ids=positions)
    cache, start, parts = LayerKVCache(BLOCK), 0, []
    for length in chunks:
        stop = start + length
        part = layer(x[:, start:stop], mask.bind(length, stop), cache=cache, position_ids=positions[:, start:stop])
        parts.append(part)
        start = stop
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=1e-5, atol=1e-5)


def test_cross_attention_projects_its_memory_once():
    torch.manual_seed(0)
    layer, memory = Attention(24, 4, cross=True), torch.randn(2, 7, 24)
    projected = []
    layer.key.register_forward_hook(lambda *_: projected.append("key"))
    layer.value.register_forward_hook(lambda *_: projected.append("value"))
    cache, x = LayerKVCache(BLOCK), torch.randn(2, 3, 24)
    outs = [layer(x[:, i : i + 1], BoundMask(), memory=memory, cache=cache) for i in range(3)]
    assert projected == ["key", "value"]
    assert cache.length == 0  # the memory is no position of the sequence itself
    torch.testing.assert_close(torch.cat(outs, 1), layer(x, BoundMask(), memory=memory))
    again = layer(x[:, :1], BoundMask(), cache=cache)  # the encoder's output is not needed any more
    torch.testing.assert_close(again, outs[0])


# --- models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [[1] * 8, [5, 1, 2], [1, 7]], ids=str)
@pytest.mark.parametrize("name", list(DECODERS))
@torch.no_grad()
def test_cached_steps_equal_uncached(name, chunks):
    model = DECODERS[name]()
    ids = torch.randint(0, 29, (2, 8), generator=torch.Generator().manual_seed(1))
    more = {}
    if "cross" in name or "relative" in name:
        more = {"encoder_hidden_states": torch.randn(2, 6, 12)}
    want = model(ids, **more).logits
    cache, start, parts = None, 0, []
    for length in chunks:
        out = model(ids[:, start : start + length], past_key_values=cache, use_cache=True, **more)
        cache = out.past_key_values
        parts.append(out.logits)
        start += length
        assert cache.length == start
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "gpt3 with a band", "bert decoder"])
@torch.no_grad()
def test_cached_steps_equal_uncached_with_left_padding(name):
    model = DECODERS[name]()
    ids = torch.randint(0, 29, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :4] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    want = model(ids, attention_mask=mask, position_ids=positions).logits
    alone = model(ids[:1, 4:]).logits
    cache = KVCache(2)
    parts = [
        model(
            ids[:, start:stop],
            attention_mask=mask[:, :stop],
            position_ids=positions[:, start:stop],
            past_key_values=cache,
        ).logits
        for start, stop in [(0, 5), *((n, n + 1) for n in range(5, 9))]
    ]
    got = torch.cat(parts, 1)
    torch.testing.assert_close(got[mask.bool()], want[mask.bool()], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got[:1, 4:], alone, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_cached_steps_equal_uncached_across_growth(monkeypatch):
    model = DECODERS["gpt2"]()
    ids = torch.randint(0, 29, (1, 2 * BLOCK + 3), generator=torch.Generator().manual_seed(1))
    want = model(ids).logits

    def never(*_args, **_options):
        raise AssertionError("the cache grew by concatenation")

    cache, parts = KVCache(2), []
    for n in range(0, ids.shape[1]):
        with monkeypatch.context() as patched:
            patched.setattr(torch, "cat", never)
            parts.append(model(ids[:, n : n + 1], past_key_values=cache).logits)
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_an_encoder_decoder_in_steps_equals_it_at_once():
    model = small("transformer", encoder_layers=2, feedforward_size=24)
    drawn = torch.Generator().manual_seed(1)
    source, target = torch.randint(3, 29, (2, 6), generator=drawn), torch.randint(3, 29, (2, 7), generator=drawn)
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [1] * 6])
    want = model(source, attention_mask=mask, decoder_input_ids=target).logits
    first = model(source, attention_mask=mask, decoder_input_ids=target[:, :1], use_cache=True)
    cache, parts = first.past_key_values, [first.logits]
    held = [layer.memory for layer in cache.layers]
    for n in range(1, 7):
        out = model(
            attention_mask=mask,
            decoder_input_ids=target[:, n : n + 1],
            encoder_outputs=first.encoder_last_hidden_state,
            past_key_values=cache,
        )
        parts.append(out.logits)
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=1e-4, atol=1e-4)
    assert all(layer.memory is memory for layer, memory in zip(cache.layers, held, strict=True))


@torch.no_grad()
def test_crop_and_select_on_a_model_match_starting_over():
    model = DECODERS["gpt2"]()
    ids = torch.randint(0, 29, (3, 6), generator=torch.Generator().manual_seed(1))
    cache = model(ids, use_cache=True).past_key_values
    cache.crop(4)
    cache.reorder(torch.tensor([2, 0]))
    new = torch.tensor([[5, 6], [7, 8]])
    got = model(new, past_key_values=cache).logits
    want = model(torch.cat((ids[[2, 0], :4], new), 1)).logits[:, 4:]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


# --- gradients ---------------------------------------------------------------------------------------------------


def test_a_first_call_keeps_its_gradients():
    model, embeds = DECODERS["gpt2"](), torch.randn(2, 5, 12, requires_grad=True)
    grads = [
        torch.autograd.grad(model(inputs_embeds=embeds, use_cache=cached).logits.square().sum(), embeds)[0]
        for cached in (False, True)
    ]
    torch.testing.assert_close(*grads)


def test_what_an_earlier_call_wrote_is_constant():
    model, embeds = DECODERS["gpt2"](), torch.randn(1, 4, 12, requires_grad=True)
    cache = model(inputs_embeds=embeds, use_cache=True).past_key_values
    out = model(torch.tensor([[3]]), past_key_values=cache).logits.sum()
    assert torch.autograd.grad(out, embeds, allow_unused=True) == (None,)


def test_the_encoders_keys_of_an_earlier_call_are_constant_too():
    model, memory = DECODERS["gpt2 with cross-attention"](), torch.randn(1, 4, 12, requires_grad=True)
    first = model(torch.tensor([[3]]), encoder_hidden_states=memory, use_cache=True)
    assert torch.autograd.grad(first.logits.sum(), memory, retain_graph=True)[0].any()
    out = model(torch.tensor([[3]]), encoder_hidden_states=memory, past_key_values=first.past_key_values)
    assert torch.autograd.grad(out.logits.sum(), memory, allow_unused=True) == (None,)


@pytest.mark.parametrize("calls", [1, 2], ids=["one later call", "two later calls"])
def test_a_later_call_has_the_gradients_of_its_own_positions(calls):
    """Its own keys and values are not "written in an earlier call": they take part in the gradient."""
    model = DECODERS["gpt2"]()
    prefix, *later = torch.randn(2, 3 + 2 * calls, 12).split([3] + [2] * calls, dim=1)
    later = [t.clone().requires_grad_() for t in later]
    cache = KVCache(2)
    with torch.no_grad():
        model(inputs_embeds=prefix, past_key_values=cache)
    loss = sum(model(inputs_embeds=t, past_key_values=cache).logits.square().sum() for t in later)
    got = torch.autograd.grad(loss, later)

    before, want = prefix, []
    for t in later:
        rows = model(inputs_embeds=torch.cat((before, t), 1)).logits[:, before.shape[1] :]
        want += torch.autograd.grad(rows.square().sum(), t)
        before = torch.cat((before, t.detach()), 1)
    for ours, expected in zip(got, want, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


# --- misuse ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first,then", [(2, 1), (1, 2)])
def test_a_cache_of_another_batch_size_is_refused(first, then):
    model = DECODERS["gpt2"]()
    cache = model(torch.ones(first, 3, dtype=torch.long), use_cache=True).past_key_values
    with pytest.raises(InputError, match=r"cache|past_key_values"):
        model(torch.ones(then, 1, dtype=torch.long), past_key_values=cache)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_cache_of_another_depth_is_refused(layers):
    with pytest.raises(InputError, match=r"cache|past_key_values"):
        DECODERS["gpt2"]()(torch.ones(1, 3, dtype=torch.long), past_key_values=KVCache(layers))


def test_a_model_that_reads_both_ways_refuses_a_cache():
    with pytest.raises(InputError, match="both directions"):
        small("bert", intermediate_size=24)(torch.ones(1, 3, dtype=torch.long), past_key_values=KVCache(2))


def test_something_else_for_a_cache_is_refused():
    with pytest.raises(InputError, match="tuple"):
        DECODERS["gpt2"]()(torch.ones(1, 3, dtype=torch.long), past_key_values=((1, 2), (3, 4)))


def test_positions_run_out_with_a_message():
    model = small("gpt2", max_position_embeddings=4)
    cache = model(torch.ones(1, 3, dtype=torch.long), use_cache=True).past_key_values
    with pytest.raises(InputError, match="position 5"):
        model(torch.ones(1, 2, dtype=torch.long), past_key_values=cache)
