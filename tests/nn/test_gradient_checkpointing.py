"""Layers that are computed twice to save memory, and the residual stream under autocast."""

import pytest
import torch

from clearhead.models import family
from clearhead.nn import Stack
from clearhead.nn.tracing import trace

SIZES = {
    "gpt2": {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 16, "resid_pdrop": 0.2, "attn_pdrop": 0.2},
    "bert": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16},
    "t5": {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 16},
    "bart": {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
             "decoder_attention_heads": 2, "encoder_layerdrop": 0.3, "decoder_start_token_id": 2},
    "xlnet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 16, "dropout": 0.2},
}  # fmt: skip
TASKS = {"gpt2": "causal-lm", "bert": "masked-lm", "t5": "seq2seq-lm", "bart": "seq2seq-lm", "xlnet": "permutation-lm"}


def made(name: str):
    torch.manual_seed(0)
    kind = family(name)
    raw = SIZES[name] | {"vocab_size": 40, "pad_token_id": 1}
    if name == "t5":
        raw["decoder_start_token_id"] = 0
    return kind.make(kind.config.from_dict(raw), TASKS[name]).train()


def learned(model, gradient_checkpointing: bool) -> tuple[torch.Tensor, dict]:
    for stack in (m for m in model.modules() if isinstance(m, Stack)):
        stack.gradient_checkpointing = gradient_checkpointing
    model.zero_grad()
    torch.manual_seed(1)
    ids = torch.arange(12).view(2, 6) + 3
    loss = model(ids, attention_mask=torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]]), labels=ids).loss
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", SIZES)
def test_the_same_to_the_bit(name):
    """With dropout and dropped layers: the second time the same numbers are drawn."""
    model = made(name)
    loss, gradients = learned(model, False)
    again, twice = learned(model, True)
    assert loss == again and gradients.keys() == twice.keys()
    assert all((gradients[key] == twice[key]).all() for key in gradients)


def test_less_is_kept():
    """What autograd holds for backward: with recomputing, hardly more than the input of each layer."""
    model = made("gpt2")

    def held(gradient_checkpointing: bool) -> int:
        sizes = {}

        def keep(t: torch.Tensor) -> torch.Tensor:
            sizes[t.data_ptr()] = t.numel()
            return t

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            learned(model, gradient_checkpointing)
        return sum(sizes.values())

    assert held(True) < 0.6 * held(False)


def test_only_in_training():
    model = made("gpt2").eval()
    model.stack.gradient_checkpointing = True
    ids = torch.arange(6)[None]
    assert model.generate(ids, max_new_tokens=3, do_sample=False).shape == (1, 9)
    model.train()
    with trace(model, "layers.1.output") as seen:
        model(ids, labels=ids).loss.backward()
    assert "layers.1.output" in seen


@pytest.mark.parametrize("name", SIZES)
def test_the_stream_is_narrow_under_autocast(name):
    """bf16 from the embedding on, so that sums of layers are bf16 too (where no norm stands between); fp32 without."""
    model = made(name).eval()
    stack = next(m for m in model.modules() if isinstance(m, Stack))
    seen = []
    stack.layers[0].register_forward_pre_hook(lambda _, given: seen.append(given[0].dtype))
    ids = torch.arange(6)[None]
    for on in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            loss = model(ids, labels=ids).loss
        assert torch.isfinite(loss)
    assert seen == [torch.bfloat16, torch.float32]
    plain = model(ids, labels=ids).loss
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(ids, labels=ids).loss
    assert rounded.item() == pytest.approx(plain.item(), rel=0.03)


def test_compiled_without_a_break():
    model = made("gpt2")
    ids = torch.arange(6)[None]
    for gradient_checkpointing in (False, True):
        torch._dynamo.reset()
        model.stack.gradient_checkpointing = gradient_checkpointing
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.compile(model, backend="eager", fullgraph=True)(ids, labels=ids).loss
        loss.backward()
