"""Position schemes against transformers' own modules, and against loops written from the papers."""

import math

import pytest
import torch
from torch import Tensor
from transformers import GPTNeoXConfig, T5Config
from transformers.models.ctrl.modeling_ctrl import positional_encoding
from transformers.models.gpt_neox import modeling_gpt_neox as neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.xlm.modeling_xlm import create_sinusoidal_embeddings

from clearhead.errors import ConfigError
from clearhead.nn import RelativeBuckets, RelativeKeys, Rotary, SinusoidalPositions, sinusoidal
from clearhead.nn.positions import skew

LAYOUTS = ("interleaved", "halves")


# --- sinusoidal --------------------------------------------------------------------------------------------------


def waves_by_loop(length: int, width: int, layout: str, endpoint: bool, base: float = 10_000.0) -> Tensor:
    """From the 2017 paper (open spacing) and from tensor2tensor's description (endpoint), a number at a time."""
    table = torch.zeros(length, width, dtype=torch.float64)
    waves = width // 2 if endpoint else math.ceil(width / 2)
    for position in range(length):
        for i in range(waves):
            rate = base ** (-i / max(waves - 1, 1)) if endpoint else base ** (-2 * i / width)
            sine, cosine = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, waves + i)
            table[position, sine] = math.sin(position * rate)
            if cosine < width:
                table[position, cosine] = math.cos(position * rate)
    return table.float()


@pytest.mark.parametrize("endpoint", [False, True], ids=["open", "endpoint"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 9, 32])
def test_sinusoidal_tables_follow_the_formula(width, layout, endpoint):
    got = sinusoidal(50, width, layout, endpoint=endpoint)
    assert got.shape == (50, width) and got.dtype == torch.float32
    torch.testing.assert_close(got, waves_by_loop(50, width, layout, endpoint), rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [4, 5, 8, 33])
def test_sinusoidal_layouts_are_those_of_xlm_and_marian(width):
    xlm = create_sinusoidal_embeddings(40, width, torch.empty(40, width))
    marian = MarianSinusoidalPositionalEmbedding(40, width).create_weight()
    torch.testing.assert_close(sinusoidal(40, width), xlm, rtol=0, atol=1e-6)
    torch.testing.assert_close(sinusoidal(40, width, "halves"), marian, rtol=0, atol=1e-6)


def test_the_halves_layout_is_that_of_ctrl():
    ctrl = positional_encoding(40, 16, torch.float64)
    torch.testing.assert_close(sinusoidal(40, 16, "halves").double(), ctrl, rtol=0, atol=1e-6)


def test_closed_waves_end_exactly_at_the_base():
    table = sinusoidal(20_001, 8, "halves", base=10_000.0, endpoint=True)
    assert table[10_000, 3].item() == pytest.approx(math.sin(1.0), abs=1e-6)
    assert table[10_000, 7].item() == pytest.approx(math.cos(1.0), abs=1e-6)


def test_another_base():
    torch.testing.assert_close(
        sinusoidal(30, 6, base=100.0), waves_by_loop(30, 6, "interleaved", False, 100.0), rtol=0, atol=1e-6
    )


def test_far_positions_stay_exact():
    """fp32 angles lose their fraction in the thousands; the table is made in fp64."""
    got = sinusoidal(60_001, 4)[60_000]
    want = torch.tensor([math.sin(60_000), math.cos(60_000), math.sin(600), math.cos(600)])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_an_unknown_layout_is_refused():
    with pytest.raises(ConfigError, match="spiral"):
        sinusoidal(3, 4, "spiral")  # type: ignore[arg-type]


def test_sinusoidal_positions_are_looked_up_and_never_saved():
    positions = SinusoidalPositions(10, 6, "halves", endpoint=True)
    ids = torch.tensor([[3, 0], [9, 9]])
    assert torch.equal(positions(ids), sinusoidal(10, 6, "halves", endpoint=True)[ids])
    assert positions.state_dict() == {}
    assert list(positions.parameters()) == []
    assert (positions.length, positions.width) == (10, 6)


def test_sinusoidal_positions_can_start_on_the_meta_device():
    with torch.device("meta"):
        positions = SinusoidalPositions(10, 6)
    assert positions.weight.is_meta
    positions = positions.to_empty(device="cpu")
    positions.reset_parameters()
    assert torch.equal(positions.weight, sinusoidal(10, 6))


# --- T5's buckets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("buckets,max_distance", [(32, 128), (16, 20), (8, 100), (4, 8), (64, 512), (10, 33)])
def test_buckets_are_those_of_t5(buckets, max_distance, bidirectional):
    distance = torch.arange(-700, 701)
    ours = RelativeBuckets(buckets, 2, max_distance, bidirectional).bucket(distance)
    theirs = T5Attention._relative_position_bucket(distance, bidirectional, buckets, max_distance)
    assert torch.equal(ours, theirs)
    assert ours.min() >= 0 and ours.max() < buckets


@pytest.mark.parametrize("decoder", [True, False])
@pytest.mark.parametrize("query,key", [(6, 6), (1, 40), (3, 37), (50, 50)])
def test_the_bucket_bias_is_that_of_t5_also_with_a_past(query, key, decoder):
    config = T5Config(num_heads=3, d_model=12, d_kv=4, relative_attention_num_buckets=16, is_decoder=decoder)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = RelativeBuckets(16, 3, config.relative_attention_max_distance, bidirectional=not decoder)
    ours.table.weight.data.copy_(theirs.relative_attention_bias.weight)
    want = theirs.compute_bias(query, key, past_seen_tokens=key - query)
    assert torch.equal(ours(query, key), want)
    assert ours(query, key).shape == (1, 3, query, key)


# --- rotary ------------------------------------------------------------------------------------------------------


def positions_of(batch: int, time: int, seed: int) -> Tensor:
    return torch.randint(0, 60, (batch, time), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rotated", [2, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_rotary_by_neighbours_is_that_of_gptj(rotated, seed):
    torch.manual_seed(seed)
    x, ids = torch.randn(2, 3, 7, 8), positions_of(2, 7, seed)
    sin, cos = gptj.create_sinusoidal_positions(64, rotated)[ids].chunk(2, dim=-1)
    by_time = x.transpose(1, 2)
    turned = gptj.apply_rotary_pos_emb(by_time[..., :rotated], sin, cos)
    want = torch.cat((turned, by_time[..., rotated:]), -1).transpose(1, 2)
    torch.testing.assert_close(Rotary(8, rotated, pairing="neighbours")(x, ids), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_rotary_by_halves_is_that_of_gpt_neox(share, base):
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        hidden_size=24,
        num_attention_heads=3,
        rope_parameters={"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share},
    )
    q, k, ids = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8), positions_of(2, 7, 1)
    cos, sin = neox.GPTNeoXRotaryEmbedding(config)(q, ids)
    want_q, want_k = neox.apply_rotary_pos_emb(q, k, cos, sin)
    rotary = Rotary(8, int(8 * share), base=base)
    torch.testing.assert_close(rotary(q, ids), want_q, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rotary(k, ids), want_k, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pairing", ["neighbours", "halves"])
@pytest.mark.parametrize("rotated", [4, 8])
def test_rotated_scores_depend_on_distances_only(pairing, rotated):
    torch.manual_seed(0)
    rotary = Rotary(8, rotated, pairing=pairing)
    q, k = torch.randn(2, 8, dtype=torch.float32)

    def score(at_query: int, at_key: int) -> float:
        def turn(x: Tensor, at: int) -> Tensor:
            return rotary(x.view(1, 1, 1, 8), torch.tensor([[at]])).flatten()

        return float(turn(q, at_query) @ turn(k, at_key))

    for distance in (-5, 0, 1, 9):
        near = score(20, 20 - distance)
        assert score(500, 500 - distance) == pytest.approx(near, abs=2e-4)
        assert score(20, 21 - distance) != pytest.approx(near, abs=2e-4)


@pytest.mark.parametrize("pairing", ["neighbours", "halves"])
def test_a_rotation_keeps_lengths_and_leaves_position_zero_alone(pairing):
    x = torch.randn(2, 3, 5, 8)
    rotary = Rotary(8, 6, pairing=pairing)
    turned = rotary(x, torch.arange(5)[None])
    assert torch.equal(turned[:, :, 0], x[:, :, 0])
    assert torch.equal(turned[..., 6:], x[..., 6:])
    assert not torch.allclose(turned[:, :, 1:, :6], x[:, :, 1:, :6], atol=1e-3)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def test_rotary_keeps_half_precision_but_turns_in_fp32():
    x = torch.randn(1, 2, 3, 8).bfloat16()
    ids = torch.tensor([[1000, 2001, 3003]])  # bf16 cannot even write 2001
    got = Rotary(8)(x, ids)
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, Rotary(8)(x.float(), ids).bfloat16())


def test_rotary_positions_may_differ_between_rows():
    x = torch.randn(1, 1, 4, 4).expand(2, 1, 4, 4)
    ids = torch.tensor([[0, 1, 2, 3], [7, 8, 9, 10]])
    both = Rotary(4)(x, ids)
    for row in range(2):
        assert torch.equal(both[row : row + 1], Rotary(4)(x[:1], ids[row : row + 1]))


@pytest.mark.parametrize("rotated", [3, 0, -2, 10])
def test_rotary_refuses_what_cannot_turn(rotated):
    with pytest.raises(ConfigError, match="even"):
        Rotary(8, rotated)


def test_rotary_refuses_an_unknown_pairing():
    with pytest.raises(ConfigError, match="thirds"):
        Rotary(8, pairing="thirds")  # type: ignore[arg-type]


# --- relative keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows,columns", [(1, 1), (1, 5), (5, 1), (4, 4), (3, 7), (7, 3)])
def test_skew_reads_along_the_diagonals(rows, columns):
    by_distance = torch.randn(2, 3, rows, rows + columns - 1)
    got = skew(by_distance, columns)
    assert got.shape == (2, 3, rows, columns)
    for r in range(rows):
        for c in range(columns):
            assert torch.equal(got[:, :, r, c], by_distance[:, :, r, c + rows - 1 - r])


def relative_by_loop(query: Tensor, key: Tensor, table: Tensor, most: int, with_key: bool) -> Tensor:
    """Shaw's formula: the dot product with the vector of the clipped distance, one pair at a time."""
    q, k = query.shape[-2], key.shape[-2]
    rows = []
    for i in range(q):
        row = []
        for j in range(k):
            vector = table[max(-most, min(most, (k - q + i) - j)) + most]
            term = query[..., i, :] @ vector
            row.append(term + key[..., j, :] @ vector if with_key else term)
        rows.append(torch.stack(row, -1))
    return torch.stack(rows, -2)


@pytest.mark.parametrize("with_key", [False, True], ids=["query", "query and key"])
@pytest.mark.parametrize("most", [1, 3, 20])
@pytest.mark.parametrize("q,k", [(6, 6), (1, 1), (1, 6), (2, 7), (6, 2)])
def test_relative_keys_equal_the_double_loop(q, k, most, with_key):
    torch.manual_seed(q * 100 + k)
    relative = RelativeKeys(most, 4, with_key=with_key)
    query, key = torch.randn(2, 3, q, 4, requires_grad=True), torch.randn(2, 3, k, 4, requires_grad=True)
    leaves = [query, relative.table.weight] + ([key] if with_key else [])
    got = relative(query, key)
    want = relative_by_loop(query, key, relative.table.weight, most, with_key)
    assert got.shape == (2, 3, q, k)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    slope = torch.randn_like(got)
    got_grads, want_grads = (torch.autograd.grad((out * slope).sum(), leaves) for out in (got, want))
    for ours, theirs in zip(got_grads, want_grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_distances_beyond_the_table_share_its_ends():
    relative = RelativeKeys(2, 4)
    scores = relative(torch.ones(1, 1, 8, 4), torch.ones(1, 1, 8, 4))[0, 0]
    assert torch.equal(scores[7, :6], scores[7, 5].expand(6))  # distances 7 … 2
    assert torch.equal(scores[0, 2:], scores[0, 2].expand(6))  # distances -2 … -7
    assert len({round(v, 6) for v in scores[4, 2:7].tolist()}) == 5  # 2 … -2 each have their own
