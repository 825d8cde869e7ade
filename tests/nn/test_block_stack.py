"""Layers and stacks: the three placements of the norm as formulas, and how a stack hands things to its layers."""

import pytest
import torch
from torch import Tensor, nn

from clearhead.errors import ConfigError, InputError
from clearhead.nn import (
    Attention,
    Block,
    BoundMask,
    FeedForward,
    KVCache,
    LayerNorm,
    LearnedPositions,
    Mask,
    RelativeBuckets,
    RMSNorm,
    Rotary,
    SinusoidalPositions,
    Stack,
    TokenEmbedder,
    sinusoidal,
    trace,
)

WIDTH, HEADS, VOCAB = 12, 3, 17


def a_block(placement: str = "pre", *, cross: bool = False, norms: int = 2, **options) -> Block:
    block = Block(
        Attention(WIDTH, HEADS),
        FeedForward(WIDTH, 20),
        attention_norm=LayerNorm(WIDTH),
        feedforward_norm=LayerNorm(WIDTH) if norms == 2 else None,
        cross_attention=Attention(WIDTH, HEADS, cross=True) if cross else None,
        cross_attention_norm=LayerNorm(WIDTH) if cross else None,
        placement=placement,
        **options,
    )
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.4)
    return block


def a_stack(layers: int = 2, *, causal: bool = True, final_norm: bool = True, **options) -> Stack:
    torch.manual_seed(0)
    windows = options.pop("windows", [None] * layers)
    embed = TokenEmbedder(nn.Embedding(VOCAB, WIDTH), LearnedPositions(16, WIDTH), nn.Embedding(2, WIDTH))
    return Stack(
        embed,
        [a_block(window=window) for window in windows],
        LayerNorm(WIDTH) if final_norm else None,
        causal=causal,
        **options,
    ).eval()


def ids_of(batch: int = 2, time: int = 6) -> Tensor:
    return torch.randint(0, VOCAB, (batch, time), generator=torch.Generator().manual_seed(4))


# --- one layer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cross", [False, True], ids=["", "cross"])
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_pre_and_post_norm_follow_their_formulas(placement, cross, seed):
    torch.manual_seed(seed)
    block, x, memory = a_block(placement, cross=cross), torch.randn(2, 5, WIDTH), torch.randn(2, 4, WIDTH)
    mask = Mask(causal=True).bind(5, 5)
    padding = Mask(visible=(torch.tensor([[True, True, False, False], [True] * 4]).view(2, 1, 1, 4),)).bind(5, 4)
    sublayers = [(block.attention_norm, lambda y: block.attention(y, mask))]
    if cross:
        sublayers.append((block.cross_attention_norm, lambda y: block.cross_attention(y, padding, memory)))
    sublayers.append((block.feedforward_norm, block.feedforward))
    want = x
    for norm, sublayer in sublayers:
        want = want + sublayer(norm(want)) if placement == "pre" else norm(want + sublayer(want))
    got = block(x, mask, memory=memory if cross else None, memory_mask=padding if cross else None)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("norms", [1, 2], ids=["one norm, as GPT-J", "two norms, as GPT-NeoX"])
def test_the_parallel_layer_follows_its_formula(norms):
    torch.manual_seed(0)
    block, x, mask = a_block("parallel", norms=norms), torch.randn(2, 5, WIDTH), Mask(causal=True).bind(5, 5)
    second = block.attention_norm if norms == 1 else block.feedforward_norm
    want = x + block.attention(block.attention_norm(x), mask) + block.feedforward(second(x))
    torch.testing.assert_close(block(x, mask), want)


def test_a_post_norm_layer_is_torchs_encoder_layer():
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(WIDTH, HEADS, 20, activation="gelu", batch_first=True).eval()
    ours = a_block("post").eval()
    q, k, v = theirs.self_attn.in_proj_weight.data.chunk(3)
    with torch.no_grad():
        for linear, weight in zip(
            (ours.attention.query, ours.attention.key, ours.attention.value), (q, k, v), strict=True
        ):
            linear.weight.copy_(weight)
            linear.bias.zero_()
        for mine, other in (
            (ours.attention.output, theirs.self_attn.out_proj),
            (ours.attention_norm, theirs.norm1),
            (ours.feedforward.up, theirs.linear1),
            (ours.feedforward.down, theirs.linear2),
            (ours.feedforward_norm, theirs.norm2),
        ):
            mine.load_state_dict(other.state_dict())
    x = torch.randn(2, 5, WIDTH)
    torch.testing.assert_close(ours(x, BoundMask()), theirs(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("placement", ["pre", "post", "parallel"])
def test_dropout_is_on_what_is_added_and_in_training_only(placement):
    torch.manual_seed(0)
    block, x = a_block(placement, dropout=1.0), torch.randn(2, 5, WIDTH)
    block.train()
    want = x if placement != "post" else block.feedforward_norm(block.attention_norm(x))
    torch.testing.assert_close(block(x, BoundMask()), want)  # only the residual is left
    block.eval()
    assert not torch.allclose(block(x, BoundMask()), want, atol=1e-2)


def test_a_decoder_layer_without_an_encoder_skips_its_cross_attention():
    torch.manual_seed(0)
    block, x = a_block("pre", cross=True), torch.randn(2, 5, WIDTH)
    alone = a_block("pre")
    kept = {name: tensor for name, tensor in block.state_dict().items() if not name.startswith("cross")}
    alone.load_state_dict(kept)
    torch.testing.assert_close(block(x, BoundMask()), alone(x, BoundMask()))


def test_a_bias_and_positions_reach_the_attention():
    torch.manual_seed(0)
    block = Block(
        Attention(WIDTH, HEADS, rotary=Rotary(4)),
        FeedForward(WIDTH, 20),
        attention_norm=LayerNorm(WIDTH),
        feedforward_norm=LayerNorm(WIDTH),
    )
    x, bias, ids = torch.randn(2, 5, WIDTH), torch.randn(1, HEADS, 5, 5), torch.tensor([[7, 3, 9, 1, 0]])
    with trace(block, "attention.scores") as seen:
        block(x, BoundMask(), position_ids=ids, bias=bias)
    with trace(block.attention, "scores") as alone:
        block.attention(block.attention_norm(x), BoundMask(), position_ids=ids, bias=bias)
    torch.testing.assert_close(seen["attention.scores"], alone["scores"])


def test_impossible_layers_are_refused():
    parts = {"attention": Attention(WIDTH, HEADS), "feedforward": FeedForward(WIDTH, 20)}
    norm = LayerNorm(WIDTH)
    cross = Attention(WIDTH, HEADS, cross=True)
    with pytest.raises(ConfigError, match="sandwich"):
        Block(**parts, attention_norm=norm, feedforward_norm=norm, placement="sandwich")  # type: ignore[arg-type]
    for placement in ("pre", "post"):
        with pytest.raises(ConfigError, match="norm for its feed-forward"):
            Block(**parts, attention_norm=norm, placement=placement)
    with pytest.raises(ConfigError, match="cross-attention"):
        Block(**parts, attention_norm=norm, cross_attention=cross, cross_attention_norm=norm, placement="parallel")


def test_cross_attention_without_its_norm_is_refused_when_built():
    parts = {"attention": Attention(WIDTH, HEADS), "feedforward": FeedForward(WIDTH, 20)}
    norm = LayerNorm(WIDTH)
    with pytest.raises(ConfigError, match="norm"):
        Block(
            **parts,
            attention_norm=norm,
            feedforward_norm=norm,
            cross_attention=Attention(WIDTH, HEADS, cross=True),
        )


# --- embedding ---------------------------------------------------------------------------------------------------


def test_the_embedding_is_the_sum_of_its_parts():
    torch.manual_seed(0)
    tokens, positions, segments = nn.Embedding(VOCAB, WIDTH), nn.Embedding(9, WIDTH), nn.Embedding(2, WIDTH)
    norm = LayerNorm(WIDTH)
    ids, at = ids_of(), torch.tensor([[3, 1, 4, 1, 5, 8]])
    kinds = torch.tensor([[0, 0, 1, 1, 0, 1]]).expand(2, 6)
    embed = TokenEmbedder(tokens, positions, segments, norm, scale=3.0).eval()
    with trace(embed, "*") as seen:
        out = embed(ids, at, kinds)
    torch.testing.assert_close(seen["tokens"], tokens.weight[ids] * 3.0)
    torch.testing.assert_close(seen["positions"], positions.weight[at])
    torch.testing.assert_close(seen["segments"], segments.weight[kinds])
    torch.testing.assert_close(out, norm(seen["tokens"] + seen["positions"] + seen["segments"]))
    assert torch.equal(seen["output"], out)
    torch.testing.assert_close(embed(None, at, kinds, tokens.weight[ids]), out)  # vectors are scaled as well


def test_segments_default_to_the_first():
    torch.manual_seed(0)
    embed = TokenEmbedder(nn.Embedding(VOCAB, WIDTH), None, nn.Embedding(2, WIDTH))
    ids, at = ids_of(), torch.arange(6)[None]
    assert torch.equal(embed(ids, at), embed(ids, at, torch.zeros(2, 6, dtype=torch.long)))
    assert not torch.equal(embed(ids, at), embed(ids, at, torch.ones(2, 6, dtype=torch.long)))


def test_segments_may_come_from_the_token_table():
    embed = TokenEmbedder(nn.Embedding(VOCAB, WIDTH), segments="tokens")
    ids, kinds, at = ids_of(), ids_of().flip(1), torch.arange(6)[None]
    torch.testing.assert_close(embed(ids, at, kinds), embed.tokens(ids) + embed.tokens(kinds))
    assert torch.equal(embed(ids, at), embed.tokens(ids))


def test_sinusoidal_positions_follow_the_models_dtype():
    embed = TokenEmbedder(nn.Embedding(VOCAB, WIDTH).bfloat16(), SinusoidalPositions(9, WIDTH))
    out = embed(ids_of(), torch.arange(6)[None])
    assert out.dtype == torch.bfloat16
    want = embed.tokens(ids_of()) + sinusoidal(9, WIDTH)[:6].bfloat16()
    assert torch.equal(out, want)


def test_embedding_dropout_is_in_training_only():
    embed = TokenEmbedder(nn.Embedding(VOCAB, WIDTH), dropout=1.0)
    at = torch.arange(6)[None]
    assert not embed.train()(ids_of(), at).any()
    assert torch.equal(embed.eval()(ids_of(), at), embed.tokens(ids_of()))


@pytest.mark.parametrize(
    "given,message",
    [
        ({"input_ids": torch.tensor([[0, VOCAB]])}, str(VOCAB)),
        ({"input_ids": torch.tensor([[0, -1]])}, "-1"),
        ({"input_ids": torch.tensor([[0.0, 1.0]])}, "whole numbers"),
        ({"input_ids": torch.tensor([[True, False]])}, "whole numbers"),
        ({"input_ids": torch.zeros(1, 17, dtype=torch.long)}, "position 17"),
        ({"input_ids": torch.tensor([[1, 2]]), "position_ids": torch.tensor([[0, 16]])}, "position 17"),
        ({"input_ids": torch.tensor([[1, 2]]), "position_ids": torch.tensor([[0, -1]])}, "negative"),
        ({"input_ids": torch.tensor([[1, 2]]), "token_type_ids": torch.tensor([[0, 2]])}, "token_type_ids"),
        ({"input_ids": torch.tensor([[1, 2]]), "token_type_ids": torch.tensor([[0.0, 1.0]])}, "token_type_ids"),
    ],
)
def test_ids_outside_the_tables_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        a_stack()(**given)


def test_segments_for_a_model_without_them_are_refused_unless_they_say_nothing():
    stack = a_stack()
    stack.embed.segments = None
    want = stack(ids_of())
    assert torch.equal(stack(ids_of(), token_type_ids=torch.zeros(2, 6, dtype=torch.long)), want)
    with pytest.raises(InputError, match="segment"):
        stack(ids_of(), token_type_ids=torch.ones(2, 6, dtype=torch.long))


# --- stack -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("final_norm", [True, False])
def test_a_stack_is_its_parts_in_order(causal, final_norm):
    stack, ids = a_stack(causal=causal, final_norm=final_norm), ids_of()
    x = stack.embed(ids, torch.arange(6)[None])
    for layer in stack.layers:
        x = layer(x, Mask(causal=causal).bind(6, 6))
    want = stack.final_norm(x) if final_norm else x
    torch.testing.assert_close(stack(ids), want)


def test_a_causal_stack_does_not_see_the_future():
    stack, ids = a_stack(), ids_of()
    changed = ids.clone()
    changed[:, 4] = (changed[:, 4] + 1) % VOCAB
    before, after = stack(ids), stack(changed)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:], atol=1e-3)
    both = a_stack(causal=False)
    assert not torch.allclose(both(ids)[:, :4], both(changed)[:, :4], atol=1e-4)


def test_each_layer_has_its_own_window():
    stack, ids = a_stack(windows=[None, 2, 3, 2]), ids_of(time=8)
    patterns = [f"layers.{n}.attention.weights" for n in range(4)]
    with trace(stack, *patterns) as seen:
        out = stack(ids)
    i, j = torch.arange(8)[:, None], torch.arange(8)
    for pattern, window in zip(patterns, (8, 2, 3, 2), strict=True):
        band = (j <= i) & (i - j < window)
        assert torch.equal(seen[pattern] > 0, band.expand(2, HEADS, 8, 8)), pattern
    torch.testing.assert_close(out, stack(ids), rtol=1e-4, atol=1e-5)
    cache, parts = KVCache(4), []
    for start, stop in ((0, 3), (3, 4), (4, 8)):
        parts.append(stack(ids[:, start:stop], cache=cache))
    torch.testing.assert_close(torch.cat(parts, 1), out, rtol=1e-4, atol=1e-5)


def test_a_window_bounds_how_far_a_change_travels():
    stack, ids = a_stack(windows=[2, 2], causal=False), ids_of(time=9)
    changed = ids.clone()
    changed[:, 4] = (changed[:, 4] + 1) % VOCAB
    moved = (stack(ids) - stack(changed)).abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == [2 <= n <= 6 for n in range(9)]  # one step per layer, both ways


def test_padding_does_not_change_the_text_beside_it():
    stack = a_stack(causal=False)
    short, mask = ids_of(1, 4), torch.tensor([[1, 1, 1, 1, 0, 0]])
    long = torch.cat((short, torch.tensor([[5, 9]])), 1)
    torch.testing.assert_close(stack(long, attention_mask=mask)[:, :4], stack(short), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("window", [None, 2])
def test_a_mask_with_four_axes_says_everything_itself_and_any_other_only_hides_more(window):
    """As transformers users expect: order and window are taken from a 4-D mask, and kept under a 2-D or 3-D one."""
    stack, ids = a_stack(windows=[window, window]), ids_of()
    own = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(2)) < 0.5
    own[..., 0] = True
    i, j = torch.arange(6)[:, None], torch.arange(6)
    built_in = (j <= i) & (i - j < (window or 6))
    added = torch.zeros(2, 1, 6, 6).masked_fill(~own, -torch.inf)
    padding = own[:, 0, 1]
    cases = [(own, own), (added, own), (own[:, 0], own & built_in), (padding, padding[:, None, None] & built_in)]
    for mask, want in cases:
        with trace(stack, "layers.*.attention.weights") as seen:
            stack(ids, attention_mask=mask)
        for weights in seen.values():
            assert torch.equal(weights > 0, want.expand(2, HEADS, 6, 6))


def test_a_position_bias_is_computed_once_and_reaches_every_layer():
    stack = a_stack(position_bias=RelativeBuckets(8, HEADS, max_distance=10, bidirectional=False))
    nn.init.normal_(stack.position_bias.table.weight, std=2.0)
    calls = []
    stack.position_bias.register_forward_hook(lambda *_: calls.append(1))
    ids = ids_of()
    x = stack.embed(ids, torch.arange(6)[None])
    for layer in stack.layers:
        x = layer(x, Mask(causal=True).bind(6, 6), bias=stack.position_bias(6, 6))
    calls.clear()
    got = stack(ids)
    assert len(calls) == 1
    torch.testing.assert_close(got, stack.final_norm(x))
    cache = KVCache(2)
    parts = [stack(ids[:, n : n + 1], cache=cache) for n in range(6)]
    torch.testing.assert_close(torch.cat(parts, 1), got, rtol=1e-4, atol=1e-5)


def test_a_t5_like_stack_is_transformers_t5_encoder():
    """Everything at once: RMS norm, no scale, buckets shared by all layers, gated feed-forward, no bias."""
    from transformers import T5Config, T5EncoderModel

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=VOCAB,
        d_model=WIDTH,
        d_kv=5,
        d_ff=20,
        num_layers=2,
        num_heads=HEADS,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=10,
        feed_forward_proj="gated-gelu",
    )
    theirs = T5EncoderModel(config).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)

    def layer() -> Block:
        return Block(
            Attention(WIDTH, HEADS, head_dim=5, bias=False, scale=1.0),
            FeedForward(WIDTH, 20, "gelu_new", gated=True, bias=False),
            attention_norm=RMSNorm(WIDTH),
            feedforward_norm=RMSNorm(WIDTH),
        )

    ours = Stack(
        TokenEmbedder(nn.Embedding(VOCAB, WIDTH)),
        [layer(), layer()],
        RMSNorm(WIDTH),
        causal=False,
        position_bias=RelativeBuckets(8, HEADS, max_distance=10),
    ).eval()
    body = theirs.encoder
    pairs = [
        (ours.embed.tokens, theirs.shared),
        (ours.final_norm, body.final_layer_norm),
        (ours.position_bias.table, body.block[0].layer[0].SelfAttention.relative_attention_bias),
    ]
    for mine, other in zip(ours.layers, body.block, strict=True):
        attention, feedforward = other.layer[0].SelfAttention, other.layer[1].DenseReluDense
        pairs += [
            (mine.attention_norm, other.layer[0].layer_norm),
            (mine.attention.query, attention.q),
            (mine.attention.key, attention.k),
            (mine.attention.value, attention.v),
            (mine.attention.output, attention.o),
            (mine.feedforward_norm, other.layer[1].layer_norm),
            (mine.feedforward.gate, feedforward.wi_0),
            (mine.feedforward.up, feedforward.wi_1),
            (mine.feedforward.down, feedforward.wo),
        ]
    with torch.no_grad():
        for mine, other in pairs:
            mine.weight.copy_(other.weight)
    ids, mask = ids_of(time=15), torch.ones(2, 15, dtype=torch.long)
    mask[1, 11:] = 0
    want = theirs(ids, attention_mask=mask).last_hidden_state
    got = ours(ids, attention_mask=mask)
    torch.testing.assert_close(got[mask.bool()], want[mask.bool()], rtol=1e-4, atol=1e-5)


def test_vectors_stand_in_for_ids():
    stack, ids = a_stack(), ids_of()
    torch.testing.assert_close(stack(inputs_embeds=stack.embed.tokens(ids)), stack(ids))


def test_positions_count_on_from_the_cache():
    stack, ids, cache = a_stack(), ids_of(), KVCache(2)
    stack(ids[:, :4], cache=cache)
    with trace(stack, "embed.positions") as seen:
        stack(ids[:, 4:], cache=cache)
    assert torch.equal(seen["embed.positions"], stack.embed.positions.weight[None, 4:6])


def test_a_memory_reaches_the_cross_attention_with_its_mask():
    torch.manual_seed(0)
    stack = a_stack()
    stack.layers[1] = a_block("pre", cross=True)
    ids, memory = ids_of(), torch.randn(2, 5, WIDTH)
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])
    got = stack(ids, memory=memory, memory_mask=mask)
    changed = memory.clone()
    changed[0, 2:] += 10.0  # hidden: must not matter
    torch.testing.assert_close(stack(ids, memory=changed, memory_mask=mask), got)
    changed[0, 0] += 1.0
    assert not torch.allclose(stack(ids, memory=changed, memory_mask=mask)[0], got[0], atol=1e-3)
    torch.testing.assert_close(stack(ids[:1], memory=memory[:1, :2])[0], got[0], rtol=1e-4, atol=1e-5)


IDS = torch.zeros(2, 3, dtype=torch.long)


@pytest.mark.parametrize(
    "given,message",
    [
        pytest.param({}, "either input_ids or inputs_embeds", id="nothing"),
        pytest.param({"input_ids": IDS, "inputs_embeds": torch.zeros(2, 3, WIDTH)}, "not both", id="both"),
        pytest.param({"input_ids": [[1, 2, 3]]}, "must be a tensor", id="a list"),
        pytest.param({"input_ids": torch.zeros(3, dtype=torch.long)}, "shape", id="one axis"),
        pytest.param({"input_ids": IDS[:, :, None]}, "shape", id="three axes"),
        pytest.param({"inputs_embeds": torch.zeros(2, 3)}, "shape", id="vectors with two axes"),
        pytest.param({"input_ids": IDS[:, :0]}, "empty", id="no token"),
        pytest.param({"input_ids": IDS, "position_ids": IDS[:, :2]}, "position_ids", id="few positions"),
        pytest.param({"input_ids": IDS, "position_ids": IDS[0]}, "position_ids", id="positions with one axis"),
        pytest.param(
            {"input_ids": IDS, "position_ids": IDS.repeat(2, 1)}, "position_ids", id="positions of another batch"
        ),
        pytest.param({"input_ids": IDS, "token_type_ids": IDS[:, :2]}, "token_type_ids", id="few segments"),
        pytest.param(
            {"input_ids": IDS[:1], "token_type_ids": IDS.repeat(2, 1)},
            "token_type_ids",
            id="segments of another batch",
        ),
        pytest.param({"input_ids": IDS, "attention_mask": IDS[:1]}, "attention_mask", id="mask of another batch"),
        pytest.param(
            {"input_ids": IDS, "memory": torch.zeros(2, 4, WIDTH), "memory_mask": torch.ones(2, 5)},
            r"\(2, 4\)",
            id="memory mask of another length",
        ),
    ],
)
def test_inputs_that_do_not_fit_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        a_stack()(**given)
