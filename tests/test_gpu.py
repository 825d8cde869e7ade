"""The same numbers on an accelerator: families, half precision, traces, caches, compiled code. Skipped without one."""

import pytest
import torch

import clearhead as ch
from clearhead.models.bert import FAMILY as BERT
from clearhead.models.bert import BertConfig
from clearhead.models.gpt2 import FAMILY as GPT2
from clearhead.models.gpt2 import GPT2Config
from clearhead.models.transformer import FAMILY as TRANSFORMER
from clearhead.models.transformer import TransformerConfig

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator here")

SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3, "max_position_embeddings": 128}
MODELS = {
    "gpt2": lambda: GPT2.make(GPT2Config(vocab_size=200, pad_token_id=0, **SIZES)),
    "bert": lambda: BERT.make(BertConfig(vocab_size=200, intermediate_size=128, **SIZES)),
    "transformer": lambda: TRANSFORMER.make(TransformerConfig(vocab_size=200, encoder_layers=2, **SIZES)),
}


@pytest.fixture(params=MODELS)
def pair(request, monkeypatch):
    """The same model on the CPU and on the accelerator, in exact fp32 arithmetic."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    torch.manual_seed(0)
    cpu = MODELS[request.param]()
    gpu = MODELS[request.param]()
    gpu.load_state_dict(cpu.state_dict())
    gpu.tie_weights()
    return cpu, gpu.cuda()


def inputs(model, padded=True):
    ids = torch.randint(3, 200, (3, 40))
    mask = torch.ones_like(ids)
    if padded:
        mask[1, 30:], mask[2, 7:] = 0, 0
    out = {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}
    if hasattr(model, "decoder"):
        out["decoder_input_ids"] = torch.randint(3, 200, (3, 20))
    return out


def on_gpu(batch):
    return {k: v.cuda() for k, v in batch.items()}


@pytest.mark.parametrize("padded", [False, True])
def test_same_numbers(pair, padded):
    cpu, gpu = pair
    batch = inputs(cpu, padded)
    with torch.no_grad():
        want, got = cpu(**batch).logits, gpu(**on_gpu(batch)).logits.cpu()
    real = batch["attention_mask"].bool() if want.shape[1] == 40 else slice(None)
    torch.testing.assert_close(got[real], want[real], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(pair, dtype):
    cpu, gpu = pair
    batch = inputs(cpu)
    with torch.no_grad():
        want, got = cpu(**batch).logits, gpu.to(dtype)(**on_gpu(batch)).logits.float().cpu()
    real = batch["attention_mask"].bool() if want.shape[1] == 40 else slice(None)
    assert got.isfinite().all()
    assert (got[real] - want[real]).norm() / want[real].norm() < 0.05


def test_explicit_path_and_trace(pair):
    cpu, gpu = pair
    batch = inputs(cpu)
    with torch.no_grad():
        plain = gpu(**on_gpu(batch)).logits
        with ch.trace(gpu, "**.attention.weights", cpu=True) as seen:
            watched = gpu(**on_gpu(batch)).logits
        with ch.trace(cpu, "**.attention.weights") as wanted:
            cpu(**batch)
    torch.testing.assert_close(watched, plain, rtol=1e-4, atol=1e-4)
    for name in wanted:
        assert seen[name].device.type == "cpu"
        if wanted[name].shape[-2] == 40:
            rows = batch["attention_mask"].bool()
            a, b = seen[name].transpose(1, 2)[rows], wanted[name].transpose(1, 2)[rows]
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_generation_agrees(pair):
    cpu, gpu = pair
    if not (hasattr(cpu, "decoder") or cpu.stack.causal):
        pytest.skip("an encoder does not write")
    batch = inputs(cpu)
    batch.pop("decoder_input_ids", None)
    for options in ({}, {"num_beams": 3}):
        want = cpu.generate(**batch, max_new_tokens=12, **options)
        got = gpu.generate(**on_gpu(batch), max_new_tokens=12, **options)
        assert torch.equal(got.cpu(), want)
    gpu.generate(**on_gpu(batch), max_new_tokens=12, top_k=20, seed=1)


def test_compiled_whole(pair):
    _, gpu = pair
    batch = on_gpu(inputs(gpu, padded=False))
    compiled = torch.compile(gpu, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**batch).logits, gpu(**batch).logits, rtol=1e-3, atol=1e-3)


def test_loading_onto_the_device(pair, tmp_path):
    cpu, _ = pair
    ch.hub.save_model(cpu, tmp_path / "m")
    there = ch.hub.load_model(tmp_path / "m", device="cuda", dtype="bfloat16")
    assert {p.device.type for p in there.parameters()} == {"cuda"}
    assert there.dtype == torch.bfloat16
