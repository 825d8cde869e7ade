"""`describe` against published totals and against models that really exist."""

import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from clearhead.cli import app
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
        assert d.flops_per_token > d.parameters / 2 or fam.name == "word-vectors"  # which multiplies nothing
    assert family("gpt2").presets


# ---- training

SMALL = {"vocab_size": 500, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4}


def small(name, **more):
    """A small model without dropout, in training, with the loss in stretches; and its description."""
    fam = family(name)
    config = fam.config(**SMALL, **more)
    model = fam.make(config)
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    if model.language_head is not None:
        model.language_head.chunk = 64
    return model.train(), describe(name, fam, config, model.task)


def kept_per_token(model, length=64):
    """Bytes that autograd keeps for the backward pass, without weights, for one token more.

    A GPU's autocast has norms computed in fp32, a CPU's does not: here they are as on a GPU.
    """
    narrow = torch.nn.functional.layer_norm

    def kept(rows):
        own = {p.untyped_storage().data_ptr() for p in model.parameters()}
        found = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                found[storage.data_ptr()] = storage.nbytes(), tensor  # held, so that no other gets its place
            return tensor

        ids = torch.randint(5, 400, (rows, length))
        with (
            pytest.MonkeyPatch.context() as patch,
            torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
            torch.autocast("cpu", torch.bfloat16),
        ):
            patch.setattr("torch.nn.functional.layer_norm", lambda x, *more: narrow(x.float(), *more))
            loss = model(ids, labels=ids).loss
        assert loss.requires_grad
        return sum(size for size, _ in found.values())

    return (kept(3) - kept(1)) / (2 * length)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("gpt2", {"max_position_embeddings": 64, "resid_pdrop": 0.0}),
        ("bert", {"max_position_embeddings": 64, "intermediate_size": 256, "hidden_dropout_prob": 0.0}),
        ("transformer", {"encoder_layers": 4, "feedforward_size": 256, "dropout": 0.0}),
    ],
)
def test_activations_are_what_autograd_keeps(name, more):
    model, d = small(name, **more)
    assert d.training.activation_bytes == pytest.approx(kept_per_token(model), rel=0.05)


def test_with_gradient_checkpointing_layers_keep_their_input():
    model, d = small("gpt2", max_position_embeddings=64)
    model.stack.gradient_checkpointing = True
    assert d.training.checkpointed_bytes == pytest.approx(kept_per_token(model), rel=0.05)
    assert d.training.layer_bytes * 4 < d.training.activation_bytes


def test_state_is_what_adamw_holds():
    from clearhead.train.engine.optim import optimizer

    model, d = small("gpt2", max_position_embeddings=64)
    moved = optimizer(model, lr=1e-3)
    ids = torch.zeros(1, 8, dtype=torch.long)
    model(ids, labels=ids).loss.backward()
    moved.step()
    tensors = [*model.parameters(), *(p.grad for p in model.parameters()), *moved.state_tensors().values()]
    assert d.training.state_bytes == sum(tensor.nbytes for tensor in tensors)


def test_flops_of_training_are_those_the_loop_counts_by():
    from clearhead.train.engine.flops import training_flops

    for name, more in (("gpt2", {}), ("transformer", {"encoder_layers": 2})):
        model, d = small(name, **more)
        assert d.training.flops_per_token == training_flops(model, d.training.length)


def test_gpt3_takes_what_its_paper_says():
    """Table D.1 of Brown et al.: 3.14e23 FLOP for 300 billion tokens, attention left out."""
    d = describe("gpt3-175b", GPT3, GPT3.preset("gpt3-175b"))
    assert 300e9 * d.training.flops_per_token == pytest.approx(3.14e23, rel=0.03)
    speed = d.training.tokens_per_second(gpus=1024, peak=989e12, mfu=0.4)
    assert speed == pytest.approx(1024 * 989e12 * 0.4 / d.training.flops_per_token)


def test_the_command_says_it():
    said = CliRunner().invoke(app, ["models", "describe", "gpt2", "--training", "--gpus", "2", "--json"])
    assert said.exit_code == 0, said.output
    found = json.loads(said.output)["training"]
    assert found["state_bytes"] == 2 * found["state_bytes_per_gpu"] == 16 * 124_439_808
    assert found["tokens"] == 20 * 124_439_808
    assert found["days"] * 86_400 * found["tokens_per_second"] == pytest.approx(found["tokens"])
    told = CliRunner().invoke(app, ["models", "describe", "gpt2", "--training"]).output
    assert "1.9 GiB (16 bytes per parameter)" in " ".join(told.split())


SCALING = Path(__file__).parent.parent / "docs" / "scaling.md"


def row(name):
    """A line of the table in docs/scaling.md, from what the command prints."""
    said = json.loads(CliRunner().invoke(app, ["models", "describe", name, "--training", "--json"]).output)
    e = said["training"]
    days = f"{e['days']:,.1f} days" if e["days"] >= 1 else f"{e['days'] * 24:.1f} hours"
    sequence = e["length"] / 2**30
    kept, less = e["activation_bytes_per_token"] * sequence, e["checkpointed_bytes_per_token"] * sequence
    return (
        f"| {name} | {said['parameters'] / 1e6:,.0f} M | {e['state_bytes'] / 2**30:,.1f} | {kept:.2f} | {less:.2f} "
        f"| {e['flops_per_token'] / 1e9:,.1f} | {e['tokens_per_second']:,.0f} | {days} |"
    )


def test_the_table_in_the_documents_is_the_commands():
    rows = [line for line in SCALING.read_text(encoding="utf-8").splitlines() if re.match(r"\| gpt[23]", line)]
    assert len(rows) >= 8
    assert rows == [row(line.split()[1]) for line in rows]
