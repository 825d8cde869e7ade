"""First weights: the widths the papers give, measured on matrices large enough to measure."""

import math

import pytest
import torch
from torch import Tensor, nn

from clearhead.models import family
from clearhead.nn import Attention, Block, FeedForward, LayerNorm, RelativeBuckets, RMSNorm, Stack, TokenEmbedder
from clearhead.nn.init import init_gpt2, init_normal, init_t5, init_xavier

WIDTH, HEADS, HIDDEN, VOCAB = 96, 4, 320, 400


def about(tensor: Tensor, std: float) -> None:
    """Mean zero and this width, within five standard errors of each estimate."""
    n = tensor.numel()
    assert abs(tensor.mean().item()) < 5 * std / math.sqrt(n)
    assert tensor.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * n))


def within_glorot(tensor: Tensor) -> None:
    """Uniform up to √(6 / (in + out)): the bound is kept and nearly reached, and the width is the uniform's."""
    bound = math.sqrt(6 / sum(tensor.shape))
    assert 0.98 * bound < tensor.abs().max().item() <= bound
    about(tensor, bound / math.sqrt(3))


def soil(model: nn.Module) -> None:
    """Nothing may be right by having been right already."""
    for parameter in model.parameters():
        nn.init.constant_(parameter, 7.0)


class Net(nn.Module):
    """A stack, a cross-attention and an output, tied to the embedding or not."""

    def __init__(self, *, fused: bool = False, tied: bool = True, gated: bool = False, padding: int | None = 0):
        super().__init__()
        norm = RMSNorm if gated else LayerNorm
        self.stack = Stack(
            TokenEmbedder(nn.Embedding(VOCAB, WIDTH, padding_idx=padding), nn.Embedding(64, WIDTH)),
            [
                Block(
                    Attention(WIDTH, HEADS, fused=fused),
                    FeedForward(WIDTH, HIDDEN, gated=gated),
                    attention_norm=norm(WIDTH),
                    feedforward_norm=norm(WIDTH),
                    cross_attention=Attention(WIDTH, HEADS, cross=True, fused=fused),
                    cross_attention_norm=norm(WIDTH),
                )
            ],
            norm(WIDTH),
            causal=True,
            position_bias=RelativeBuckets(256, HEADS),
        )
        self.output = nn.Linear(WIDTH, VOCAB)
        if tied:
            self.output.weight = self.stack.embed.tokens.weight
        soil(self)


def linears(model: nn.Module) -> dict[str, nn.Linear]:
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}


INITS = {
    "normal": lambda model: init_normal(model, 0.05),
    "gpt2": lambda model: init_gpt2(model, 0.05, 8),
    "xavier": lambda model: init_xavier(model, 0.1),
    "t5": lambda model: init_t5(model, WIDTH, WIDTH // HEADS),
}


@pytest.mark.parametrize("name", list(INITS))
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_biases_norms_and_padding_start_the_same_everywhere(name, tied):
    torch.manual_seed(0)
    model = Net(tied=tied, gated=name == "t5")
    INITS[name](model)
    for linear in linears(model).values():
        assert linear.bias is not None and not linear.bias.any()
    for module in model.modules():
        if isinstance(module, LayerNorm | RMSNorm):
            assert torch.equal(module.weight, torch.ones(WIDTH))
            assert getattr(module, "bias", None) is None or not module.bias.any()
    assert not model.stack.embed.tokens.weight[0].any()  # padding
    assert (model.output.weight is model.stack.embed.tokens.weight) == tied


@pytest.mark.parametrize("name", list(INITS))
def test_a_model_without_padding_zeroes_no_row(name):
    model = Net(padding=None)
    INITS[name](model)
    assert model.stack.embed.tokens.weight.any(-1).all()


@pytest.mark.parametrize("name", list(INITS))
def test_no_weight_is_left_as_it_was(name):
    model = Net(tied=False)
    INITS[name](model)
    left = [n for n, p in model.named_parameters() if (p == 7.0).any()]
    assert left == []


@pytest.mark.parametrize(
    "name,std", [("normal", 0.05), ("gpt2", 0.05), ("xavier", 0.1), ("t5", 1.0)], ids=lambda v: str(v)
)
def test_a_tied_output_keeps_the_width_of_the_table(name, std):
    torch.manual_seed(0)
    model = Net(tied=True)
    INITS[name](model)
    about(model.output.weight[1:], std)
    about(model.stack.embed.positions.weight, std)


def test_normal():
    torch.manual_seed(0)
    model = Net(tied=False)
    init_normal(model, 0.05)
    for linear in linears(model).values():
        about(linear.weight, 0.05)


@pytest.mark.parametrize("layers", [1, 8, 48])
@pytest.mark.parametrize("fused", [False, True])
def test_gpt2_narrows_what_writes_into_the_residual_stream(layers, fused):
    torch.manual_seed(0)
    model = Net(tied=False, fused=fused)
    init_gpt2(model, 0.05, layers)
    for name, linear in linears(model).items():
        writes = name.endswith(("attention.output", "feedforward.down"))
        about(linear.weight, 0.05 / math.sqrt(2 * layers) if writes else 0.05)


@pytest.mark.parametrize("fused", [False, True])
def test_xavier_bounds_each_of_query_key_and_value(fused):
    """One stored matrix or three, the first weights have one law."""
    torch.manual_seed(0)
    model = Net(tied=False, fused=fused)
    init_xavier(model, 0.1)
    parts = {"qkv": 3, "key_value": 2}
    for name, linear in linears(model).items():
        for part in linear.weight.detach().chunk(parts.get(name.rsplit(".", 1)[-1], 1)):
            within_glorot(part)


def test_xavier_splits_shared_key_heads_where_they_meet():
    torch.manual_seed(0)
    attention = Attention(128, 8, kv_heads=2, fused=True)
    init_xavier(attention, 0.1)
    for part in attention.qkv.weight.detach().split([128, 32, 32]):
        within_glorot(part)


@pytest.mark.parametrize("factor", [1.0, 0.25])
@pytest.mark.parametrize("gated", [False, True])
def test_t5_widths(factor, gated):
    torch.manual_seed(0)
    model = Net(gated=gated)
    head_dim = WIDTH // HEADS
    init_t5(model, WIDTH, head_dim, factor)
    block = model.stack.layers[0]
    for attention in (block.attention, block.cross_attention):
        about(attention.query.weight, factor * (WIDTH * head_dim) ** -0.5)
        about(attention.key.weight, factor * WIDTH**-0.5)
        about(attention.value.weight, factor * WIDTH**-0.5)
        about(attention.output.weight, factor * (HEADS * head_dim) ** -0.5)
    about(block.feedforward.up.weight, factor * WIDTH**-0.5)
    about(block.feedforward.down.weight, factor * HIDDEN**-0.5)
    if gated:
        about(block.feedforward.gate.weight, factor * WIDTH**-0.5)
    about(model.stack.embed.tokens.weight[1:], factor)
    about(model.stack.position_bias.table.weight, factor * WIDTH**-0.5)


def test_t5_starts_with_scores_of_unit_variance():
    torch.manual_seed(0)
    attention = Attention(WIDTH, HEADS, bias=False, scale=1.0)
    init_t5(attention, WIDTH, WIDTH // HEADS)
    x = torch.randn(8, 40, WIDTH)
    q, k = (linear(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for linear in (attention.query, attention.key))
    assert (q @ k.mT).std().item() == pytest.approx(1.0, rel=0.1)


# --- the families ------------------------------------------------------------------------------------------------


def test_gpt2_and_gpt3_use_their_own_depth():
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": HEADS}
    for name in ("gpt2", "gpt3"):
        chosen = family(name)
        model = chosen.make(chosen.config(initializer_range=0.05, max_position_embeddings=64, **sizes))
        for layer in model.stack.layers:
            about(layer.attention.qkv.weight, 0.05)
            about(layer.attention.output.weight, 0.05 / math.sqrt(6))
            about(layer.feedforward.down.weight, 0.05 / math.sqrt(6))
        assert model.head.output.weight is model.stack.embed.tokens.weight
        about(model.head.output.weight, 0.05)


def test_bert_uses_one_width_and_keeps_its_padding_row_empty():
    torch.manual_seed(0)
    bert = family("bert")
    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    model = bert.make(bert.config(initializer_range=0.03, intermediate_size=HIDDEN, **sizes))
    for linear in linears(model.stack).values():
        about(linear.weight, 0.03)
    about(model.head.transform.dense.weight, 0.03)
    assert not model.stack.embed.tokens.weight[0].any()
    about(model.head.output.weight[1:], 0.03)


def test_the_2017_transformer_is_glorot_with_tables_of_one_over_root_width():
    torch.manual_seed(0)
    chosen = family("transformer")
    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": HEADS}
    model = chosen.make(chosen.config(encoder_layers=1, feedforward_size=HIDDEN, **sizes))
    for name, linear in linears(model).items():
        if name != "head.output":
            within_glorot(linear.weight.detach())
    about(model.head.output.weight[1:], WIDTH**-0.5)
    assert model.head.output.weight is model.encoder.embed.tokens.weight is model.decoder.embed.tokens.weight


def test_the_same_seed_draws_the_same_weights():
    gpt2 = family("gpt2")
    config = gpt2.config(
        vocab_size=30, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=8
    )
    drawn = []
    for _ in range(2):
        torch.manual_seed(5)
        drawn.append(gpt2.make(config).state_dict())
    assert all(torch.equal(drawn[0][name], drawn[1][name]) for name in drawn[0])
