"""`describe` against published totals and against models that really exist."""

import pytest
import torch

from clearhead.hub.describe import describe
from clearhead.models import family, presets
from clearhead.models.bert import FAMILY as BERT
from clearhead.models.gpt2 import FAMILY as GPT2
from clearhead.models.gpt2 import GPT2Config
from clearhead.models.gpt3 import FAMILY as GPT3
from clearhead.models.gpt3 import GPT3Config


@pytest.mark.parametrize(
    ("name", "task", "published"),
    [
        ("gpt2", "causal-lm", 124_439_808),
        ("gpt2-medium", "causal-lm", 354_823_168),
        ("gpt2-large", "causal-lm", 774_030_080),
        ("gpt2-xl", "causal-lm", 1_557_611_200),
        ("bert-base-uncased", "features", 109_482_240),
        ("bert-large-uncased", "features", 335_141_888),
        ("bert-base-cased", "features", 108_310_272),
        ("bert-base-chinese", "features", 102_267_648),
        ("bert-base-multilingual-cased", "features", 177_853_440),
    ],
)
def test_parameters_sum_to_the_published_total(name, task, published):
    fam = presets()[name]
    d = describe(name, fam, fam.preset(name), task)
    assert d.parameters == published
    assert sum(part.parameters for part in d.parts) == published
    assert d.memory("float32") == 4 * published


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("gpt3-small", 0.125), ("gpt3-medium", 0.350), ("gpt3-large", 0.760), ("gpt3-xl", 1.3), ("gpt3-2.7b", 2.7),
        ("gpt3-6.7b", 6.7), ("gpt3-13b", 13.0), ("gpt3-175b", 175.0),
    ],
)  # fmt: skip
def test_gpt3_sizes_come_near_their_names(name, billions):
    """The paper rounds; so the sum must round to it within 3 %."""
    d = describe(name, GPT3, GPT3.preset(name))
    assert d.parameters / 1e9 == pytest.approx(billions, rel=0.03)
    assert d.context == 2048


def test_flops_and_cache_by_hand():
    config = GPT2Config(
        vocab_size=100, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, max_position_embeddings=32
    )
    d = describe("tiny", GPT2, config)
    per_layer = 2 * (16 * 48 + 16 * 16 + 16 * 64 + 64 * 16) + 4 * 16 * 32
    assert d.flops_per_token == 3 * per_layer + 2 * 16 * 100
    assert d.cache_values_per_token == 3 * 2 * 16
    assert d.cache_bytes_per_token("bfloat16") == 3 * 2 * 16 * 2


def test_flops_agree_with_torchs_own_counter():
    from torch.utils.flop_counter import FlopCounterMode

    config = GPT2Config(
        vocab_size=100, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, max_position_embeddings=32
    )
    model = GPT2.make(config)
    cache = model(torch.zeros(1, 31, dtype=torch.long), use_cache=True).past_key_values
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        # one token at the last position, with scores computed step by step so that torch counts them
        from clearhead.nn import trace

        with trace(model, "layers.*.attention.weights"):
            model(torch.zeros(1, 1, dtype=torch.long), past_key_values=cache)
    assert counter.get_total_flops() == describe("tiny", GPT2, config).flops_per_token


def test_bert_has_nothing_to_cache():
    assert describe("bert-base-uncased", BERT, BERT.preset("bert-base-uncased")).cache_values_per_token == 0


def test_gpt3_runs_scaled_down_and_its_bands_are_narrow():
    from clearhead.nn import trace

    config = GPT3Config(
        vocab_size=60, hidden_size=24, num_hidden_layers=4, num_attention_heads=3, head_dim=10, band=4,
        max_position_embeddings=40, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = GPT3.make(config)
    ids = torch.randint(0, 60, (2, 20))
    with torch.no_grad(), trace(model, "layers.*.attention.weights") as seen:
        whole = model(ids).logits
        cache, steps = None, []
        for n in range(20):
            out = model(ids[:, n : n + 1], past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            steps.append(out.logits)
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5)
    i, j = torch.arange(20)[:, None], torch.arange(20)[None]
    with torch.no_grad(), trace(model, "layers.*.attention.weights") as seen:
        model(ids)
    for n in range(4):
        weights = seen[f"layers.{n}.attention.weights"]
        visible = (j <= i) & ((i - j < 4) if n % 2 else torch.ones(20, 20, dtype=torch.bool))
        assert (weights[..., ~visible] == 0).all()
        assert (weights[..., visible] > 0).all()


def test_every_preset_is_described():
    for name, fam in presets().items():
        d = describe(name, fam, fam.preset(name))
        assert d.parameters > 1e7
        assert d.flops_per_token > d.parameters / 2
    assert family("gpt2").presets
