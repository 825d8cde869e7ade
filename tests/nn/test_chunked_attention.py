"""Chunked attention: who looks at which neighbours, and that a text read in pieces is the text read at once."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.models import family
from clearhead.models.retrieval import RetrievalModel
from clearhead.nn import KVCache, trace
from clearhead.nn.positions import RelativeSinusoids

TIME, ROWS, K = 23, 3, 2


def model_of(seed: int, **options) -> RetrievalModel:
    """A small model with options drawn at random, and weights that let every part show."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    post = rng.random() < 0.3
    drawn = {
        "num_hidden_layers": rng.choice([2, 3]),
        "num_attention_heads": rng.choice([1, 2, 3]),
        "head_dim": rng.choice([4, 6]),
        "learned_positions": rng.random() < 0.5,
        "decoder_positions": rng.choice(["relative", "rotary", None]),
        "neighbor_positions": rng.choice(["relative", "rotary", None]),
        "rotary_dim": rng.choice([None, 4]),
        "norm": rng.choice(["rms_norm", "gated_rms_norm", "layer_norm"]),
        "norm_placement": "post" if post else "pre",
        "residual_scale": 1.7 if post else 1.0,
        "fused_attention": rng.random() < 0.5,
        "attention_bias": rng.random() < 0.5,
        "attention_output_bias": rng.random() < 0.5,
        "chunk_size": rng.choice([2, 4, 5]),
        "chunked_attention_layers": rng.choice([[1], [2], [1, 2]]),
        "null_key": rng.random() < 0.5,
        "pad_query_positions": rng.random() < 0.3,
        "encoder_hidden_size": rng.choice([8, 12]),
        "encoder_layers": rng.choice([1, 2]),
        "encoder_projection": rng.random() < 0.5,
        "share_embeddings": rng.random() < 0.5,
    }
    sizes = {"vocab_size": 30, "hidden_size": 12, "encoder_heads": 2, "encoder_head_dim": 4, "pad_token_id": 0}
    fam = family("retro")
    config = fam.config(**{**sizes, "max_position_embeddings": 64, "initializer_range": 0.3, **drawn, **options})
    model = fam.make(config)
    for p in model.parameters():
        if p.ndim == 1:
            nn.init.normal_(p, std=0.3)
    assert isinstance(model, RetrievalModel)
    return model


def inputs_of(model: RetrievalModel) -> tuple[Tensor, Tensor]:
    size = model.chunk_size
    neighbors = torch.randint(0, 30, (ROWS, TIME // size, K, 2 * size))
    neighbors[0, 0] = 0  # nothing was found
    return torch.randint(1, 30, (ROWS, TIME)), neighbors


def close(got: Tensor, want: Tensor) -> bool:
    return float((got - want).abs().max()) <= 1e-5 * float(want.abs().max())


@pytest.mark.parametrize("seed", range(12))
@torch.no_grad()
def test_a_text_in_pieces_is_the_text_at_once(seed):
    model, rng = model_of(seed), random.Random(seed)
    size, (ids, neighbors) = model.chunk_size, inputs_of(model)
    want = model(input_ids=ids, neighbor_ids=neighbors).logits
    state, got, at = model.start_state(4), [], 0
    while at < TIME:
        new = ids[:, at : at + rng.choice([1, 1, 1, 2, size, 2 * size + 1])]
        end = at + new.shape[1]
        found = neighbors[:, at // size : end // size]
        got.append(model(input_ids=new, neighbor_ids=found, past_key_values=state).logits)
        at = end
    assert close(torch.cat(got, 1), want)
    assert state.length == TIME


@pytest.mark.parametrize("seed", range(12, 20))
@torch.no_grad()
def test_padding_before_a_text_does_not_move_its_chunks(seed):
    model, rng = model_of(seed), random.Random(seed)
    size, (ids, neighbors) = model.chunk_size, inputs_of(model)
    alone = model(input_ids=ids, neighbor_ids=neighbors).logits
    padding = [0, 3, size + 1]
    mask = torch.tensor([[0] * p + [1] * (TIME - p) for p in padding])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    padded = torch.stack([torch.cat([torch.zeros(p).long(), ids[n, : TIME - p]]) for n, p in enumerate(padding)])
    told = {"attention_mask": mask, "position_ids": positions}
    whole = model(input_ids=padded, neighbor_ids=neighbors, **told).logits
    for row, p in enumerate(padding):
        assert close(whole[row, p:], alone[row, : TIME - p])
    state, at = model.start_state(4), 0
    while at < TIME:  # rows finish their chunks in different calls
        end = min(at + (rng.choice([1, 1, 2, size, 2 * size + 1]) if at else 7), TIME)
        spans = [(max(at - p, 0) // size, max(end - p, 0) // size) for p in padding]
        found = torch.zeros(ROWS, max(b - a for a, b in spans), *neighbors.shape[2:]).long()
        for row, (first, last) in enumerate(spans):
            found[row, : last - first] = neighbors[row, first:last]
        told = {"attention_mask": mask[:, :end], "position_ids": positions[:, at:end]}
        got = model(input_ids=padded[:, at:end], neighbor_ids=found, past_key_values=state, **told).logits
        for row, p in enumerate(padding):
            if end > p:
                begin = max(p - at, 0)
                assert close(got[row, begin:], whole[row, at + begin : end])
        at = end


@pytest.mark.parametrize("seed", range(20, 26))
@torch.no_grad()
def test_a_state_goes_back_changes_rows_and_is_copied(seed):
    model = model_of(seed)
    size, (ids, neighbors) = model.chunk_size, inputs_of(model)
    want = model(input_ids=ids, neighbor_ids=neighbors).logits

    def read(state, begin, end, rows=slice(None)):
        found = neighbors[rows][:, begin // size : end // size]
        return model(input_ids=ids[rows][:, begin:end], neighbor_ids=found, past_key_values=state).logits

    state = model.start_state(4)
    read(state, 0, 15)
    other = state.copy()
    wrong = torch.randint(1, 30, (ROWS, 7))
    model(
        input_ids=wrong, neighbor_ids=torch.randint(1, 30, (ROWS, 22 // size - 15 // size, K, 2 * size)),
        past_key_values=state,
    )  # fmt: skip
    state.crop(11)  # into an earlier chunk: its neighbours are looked at again
    steps = torch.cat([read(state, n, n + 1) for n in range(11, TIME)], 1)
    assert close(steps, want[:, 11:])
    assert close(read(other, 15, TIME), want[:, 15:])
    end = TIME // size * size  # the last chunk's end, read with other neighbours and then once more
    state.crop(end - 1)
    again = neighbors[:, -1:] % 29 + 1
    changed = model(input_ids=ids, neighbor_ids=torch.cat([neighbors[:, :-1], again], 1)).logits
    got = model(input_ids=ids[:, end - 1 : end], neighbor_ids=again, past_key_values=state).logits
    assert close(got, changed[:, end - 1 : end])
    state.crop(end - 1)
    assert close(read(state, end - 1, end), want[:, end - 1 : end])
    order = torch.tensor([2, 0, 2, 1])
    state = model.start_state(4)
    read(state, 0, 17)
    state.reorder(order)
    assert close(torch.cat([read(state, n, n + 1, order) for n in range(17, TIME)], 1), want[order, 17:])
    state.crop(17)
    read(state, 17, 18, order)
    state.repeat(2)
    twice = order.repeat_interleave(2)
    assert close(torch.cat([read(state, n, n + 1, twice) for n in range(18, TIME)], 1), want[twice, 18:])
    assert state.nbytes > 0


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_act_from_the_last_token_of_their_chunk_on(seed):
    model = model_of(seed, norm_placement="pre", residual_scale=1.0)
    size, (ids, neighbors) = model.chunk_size, inputs_of(model)
    neighbors = neighbors.clamp(min=1)
    with torch.no_grad():
        want = model(input_ids=ids, neighbor_ids=neighbors).logits
        bare = model(input_ids=ids).logits
        assert torch.allclose(want[:, : size - 1], bare[:, : size - 1], atol=1e-6)
        for chunk in range(TIME // size):
            changed = neighbors.clone()
            changed[:, chunk] = changed[:, chunk] % 29 + 1
            moved = (model(input_ids=ids, neighbor_ids=changed).logits - want).abs().amax((0, 2)) > 1e-5
            first = (chunk + 1) * size - 1
            assert not moved[:first].any() and moved[first]
        for at in (size - 1, 2 * size, TIME - 1):  # nobody sees what comes later, through an encoder either
            other = ids.clone()
            other[:, at] = other[:, at] % 29 + 1
            moved = (model(input_ids=other, neighbor_ids=neighbors).logits - want).abs().amax((0, 2)) > 1e-5
            assert not moved[:at].any() and moved[at]


@torch.no_grad()
def test_what_is_hidden_and_what_is_left_out():
    model = model_of(1, null_key=False, norm_placement="pre", residual_scale=1.0)
    size, (ids, neighbors) = model.chunk_size, inputs_of(model)
    want = model(input_ids=ids, neighbor_ids=neighbors).logits
    longer = torch.cat([neighbors, torch.zeros_like(neighbors)], -1)
    more = torch.cat([longer, torch.zeros_like(longer[:, :, :1])], 2)
    assert close(model(input_ids=ids, neighbor_ids=more).logits, want)  # padding counts for nothing
    bare = model(input_ids=ids).logits
    assert close(model(input_ids=ids, neighbor_ids=torch.zeros_like(neighbors)).logits, bare)
    fewer = model(input_ids=ids, neighbor_ids=neighbors[:, :1]).logits  # later chunks look at none
    assert close(fewer[:, : 2 * size - 1], want[:, : 2 * size - 1])
    ragged = torch.cat([neighbors, torch.randint(1, 30, (ROWS, 1, K, 2 * size))], 1)
    assert TIME % size and close(model(input_ids=ids, neighbor_ids=ragged).logits, want)  # of a chunk that is not whole


def test_gradients_reach_the_encoder_with_checkpointing_as_without():
    model = model_of(2, norm_placement="pre", residual_scale=1.0).train()
    ids, neighbors = inputs_of(model)

    def gradients():
        model.zero_grad()
        model(input_ids=ids, neighbor_ids=neighbors, labels=ids).loss.backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    plain = gradients()
    assert any(name.startswith("neighbor_encoder.layers.0.") and grad.any() for name, grad in plain.items())
    model.stack.gradient_checkpointing = True
    again = gradients()
    assert plain.keys() == again.keys()
    for name, grad in plain.items():
        torch.testing.assert_close(again[name], grad)


@torch.no_grad()
def test_names_and_weights_of_a_trace():
    model = model_of(3, chunked_attention_layers=[2], chunk_size=4, null_key=True, encoder_layers=2)
    ids, neighbors = inputs_of(model)
    with trace(model, "layers.*.chunked_attention.*", "neighbor_encoder.**") as seen:
        model(input_ids=ids, neighbor_ids=neighbors)
    weights = seen["layers.1.chunked_attention.weights"]
    assert weights.shape == (ROWS * 5, model.config.num_attention_heads, 4, 1 + K * 8)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert torch.all(weights[0, ..., 0] == 1)  # nothing was found for the first chunk: the null key has it all
    assert seen["layers.1.chunked_attention.output"].shape == (ROWS, TIME, 12)
    assert not seen["layers.1.chunked_attention.output"][:, :3].any()
    assert seen["neighbor_encoder.layers.0.cross_attention.weights"].shape[-2:] == (8, 4)
    assert "layers.0.chunked_attention.weights" not in seen


@pytest.mark.parametrize(
    "wrong, said",
    [
        (torch.zeros(ROWS, 5, 2).long(), "shape"),
        (torch.zeros(2, 5, 2, 8).long(), "shape"),
        (torch.zeros(ROWS, 7, 2, 8).long(), "7 chunks"),
        (torch.full((ROWS, 5, 2, 8), 30), "neighbor_ids"),
        ([[1]], "tensor"),
    ],
)
def test_neighbours_of_a_wrong_shape_are_refused(wrong, said):
    model = model_of(3, chunk_size=4)
    with pytest.raises(InputError, match=said):
        model(input_ids=torch.ones(ROWS, TIME).long(), neighbor_ids=wrong)


def test_a_plain_cache_is_refused():
    with pytest.raises(InputError, match="start_state"):
        model_of(0)(input_ids=torch.ones(1, 3).long(), past_key_values=KVCache(3))


def test_sinusoids_of_distance_are_the_same_in_one_sequence_and_between_two():
    torch.manual_seed(0)
    relative = RelativeSinusoids(8, 2, 4)
    query, key = torch.randn(3, 2, 5, 4), torch.randn(3, 2, 9, 4)
    want = relative.between(query, torch.arange(4, 9)[None], torch.arange(9))
    torch.testing.assert_close(relative(query, key), want)
