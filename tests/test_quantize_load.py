"""ch.load(…, quantize=…): every family that writes, on the way from a folder to text, and the automatic choice."""

import os

import pytest
import torch

import clearhead as ch
from clearhead import hub, models
from clearhead.errors import InputError
from clearhead.hub import precision
from clearhead.nn import trace
from clearhead.nn.fast.quantized import QuantizedEmbedding, QuantizedLinear
from tests.fork_server import run_python
from tests.tiny import fields_of, tiny

# sizes that every family can be built with, by the names families use
SIZES = {
    "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "intermediate_size": 96,
    "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "feedforward_size": 96, "head_dim": 16, "embedding_size": 64,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "sep_token_id": 3,
    "decoder_start_token_id": 1, "forced_eos_token_id": None, "rotary_dim": 8, "window_size": 8, "band": 8,
    "block_size": 4, "cutoffs": [80, 100], "div_val": 2, "mem_len": 16, "clamp_len": 16,
    "attention_layers": ["global", "local"],
}  # fmt: skip
WRITERS = [
    (name, task)
    for name in sorted(models.FAMILIES)
    for task in ("causal-lm", "seq2seq-lm")
    if task in models.family(name).architectures
]


def small(name: str, task: str, **more) -> models.Model:
    tied = {"tie_word_embeddings": models.family(name).config.tie_word_embeddings}
    options = {key: value for key, value in (SIZES | tied | more).items() if key in fields_of(name)}
    return tiny(name, task, shaken=False, **options)


def folder_of(model: models.Model, where) -> str:
    hub.save_model(model, where / "model")
    return str(where / "model")


def bytes_of(model: torch.nn.Module) -> int:
    return sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers()])


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize(("name", "task"), WRITERS)
def test_every_family_that_writes(name, task, kind, tmp_path):
    folder = folder_of(small(name, task), tmp_path)
    plain, ours = ch.load(folder, task).model, ch.load(folder, task, quantize=kind).model
    assert ours.quantized == kind and plain.quantized is None
    assert ours.num_parameters() == plain.num_parameters()
    assert bytes_of(ours) < bytes_of(plain)
    assert (ours.dtype, ours.device.type) == (torch.float32, "cpu")
    ids = torch.randint(4, 128, (1, 5))
    options = {"decoder_input_ids": ids} if task == "seq2seq-lm" else {}
    with torch.no_grad():
        wanted, found = plain(ids, **options).logits, ours(ids, **options).logits
    error = (found - wanted).norm() / (wanted - wanted.mean()).norm()
    assert error < (0.05 if kind == "int8" else 0.5)
    assert not torch.equal(found, wanted)
    assert ours.generate(ids, max_new_tokens=4, min_new_tokens=4).shape[1] == plain.generate(
        ids, max_new_tokens=4, min_new_tokens=4
    ).shape[1]  # fmt: skip


def test_a_tied_output_stays_one_matrix(tmp_path):
    folder = folder_of(small("gpt2", "causal-lm"), tmp_path)
    model = ch.load(folder, quantize="int8").model
    assert isinstance(model.stack.embed.tokens, QuantizedEmbedding)
    assert isinstance(model.head.output, QuantizedLinear)
    assert model.stack.embed.tokens.matrix is model.head.output.matrix
    untied = ch.load(folder_of(small("gpt2", "causal-lm", tie_word_embeddings=False), tmp_path / "2"), quantize="int8")
    assert type(untied.model.stack.embed.tokens) is torch.nn.Embedding


def test_memory_is_what_was_promised():
    model = models.family("gpt2").make(models.family("gpt2").config(num_hidden_layers=1, vocab_size=2000))
    size = bytes_of(model)
    eight, four = (hub.apply_precision(_copy(model), kind) for kind in ("int8", "int4"))
    positions = model.stack.embed.positions.weight.numel() * 4
    assert bytes_of(eight) - positions < (size - positions) * 0.26
    assert bytes_of(four) - positions < (size - positions) * 0.165


def _copy(model):
    import copy

    return copy.deepcopy(model)


def test_the_stored_type_does_not_matter(tmp_path):
    folder = folder_of(small("gpt2", "causal-lm").bfloat16(), tmp_path)
    model = ch.load(folder, quantize="int8").model
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.generate(torch.tensor([[5, 6]]), max_new_tokens=2).shape[1] == 4


def test_traces_gradients_and_beams_go_on_working():
    pipe = ch.load("random-gpt2", quantize="int8")
    ids = pipe.tokenizer("The robot", return_tensors="pt")["input_ids"]
    with trace(pipe.model, "layers.0.attention.weights") as seen:
        pipe.model(ids)
    assert seen["layers.0.attention.weights"].shape[1] == 4
    vectors = pipe.model.stack.embed.tokens(ids).requires_grad_()
    pipe.model(inputs_embeds=vectors).logits.sum().backward()
    assert bool(vectors.grad.abs().sum() > 0)
    assert pipe.generate("The robot", num_beams=3, max_new_tokens=3).startswith("The robot")
    assert "int8" in repr(pipe)


def test_refusals(tmp_path):
    with pytest.raises(InputError, match=r"'int88'.*Did you mean int8"):
        ch.load("random-gpt2", quantize="int88")
    with pytest.raises(InputError, match="run on the CPU"):
        hub.check_quantize("int8", None, torch.device("cuda"))
    with pytest.raises(InputError, match="float32"):
        ch.load("random-gpt2", quantize="int8", dtype="bfloat16")
    pipe = ch.load("random-gpt2", quantize="int8")
    with pytest.raises(InputError, match="without quantize="):
        pipe.save(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    with pytest.raises(InputError, match="cannot be trained"):
        pipe.model.train()
    assert not pipe.model.training
    sorter = ch.load("random-gpt2", task="sequence-classification", quantize="int8").model
    with pytest.raises(InputError, match="bfloat16"):
        sorter.to(torch.bfloat16)
    assert {p.dtype for p in sorter.parameters()} == {torch.float32}  # nothing was half done
    pipe.model.to("cpu").eval()


@pytest.mark.parametrize(
    ("costs", "errors", "best"),
    [
        ((9, 5, 3, 1), (0, 0.002, 0.008, 0.09), "int8"),  # int4 is fastest and too far off
        ((9, 2, 3, 1), (0, 0.002, 0.008, 0.09), "bfloat16"),
        ((1, 2, 3, 4), (0, 0.002, 0.008, 0.09), "float32"),
        ((9, 5, 3, 1), (0, 0.002, 0.008, 0.019), "int4"),
        ((9, 5, 3, 1), (0, 0.03, 0.03, 0.03), "float32"),
    ],
)
def test_the_rule_of_auto(costs, errors, best, monkeypatch, capsys):
    names = ("float32", "bfloat16", "int8", "int4")
    table = [precision.PrecisionCost(*row) for row in zip(names, costs, errors, strict=True)]
    monkeypatch.setattr(precision, "measure", lambda model: table)
    model = ch.load("random-gpt2", quantize="auto").model
    assert model.quantized == (best if best in ("int8", "int4") else None)
    assert model.dtype == (torch.bfloat16 if best == "bfloat16" else torch.float32)
    said = capsys.readouterr()
    assert not said.out and all(name in said.err for name in names)
    (line,) = [line for line in said.err.splitlines() if "chosen" in line]
    assert best in line


def test_auto_measures_this_machine(tmp_path):
    table = {row.name: row for row in precision.measure(ch.load("random-gpt2").model, repeats=1)}
    assert table["float32"].error < 1e-6
    assert 1e-4 < table["bfloat16"].error < table["int8"].error * 2 < precision.MAX_ERROR * 2
    assert precision.MAX_ERROR < table["int4"].error < 0.2
    assert all(row.milliseconds > 0 for row in table.values())
    pipe = ch.load(folder_of(small("t5", "seq2seq-lm"), tmp_path), quantize="auto")
    assert pipe.model.generate(torch.tensor([[5, 6]]), max_new_tokens=2).shape == (1, 3)


def test_it_works_without_native_kernels():
    code = (
        "import clearhead as ch, logging; logging.basicConfig()\n"
        "for kind in ('int8', 'int4'): print(ch.load('random-gpt2', quantize=kind).generate('The', max_new_tokens=5))"
    )
    runs = [run_python(["-c", code], {**os.environ, "CLEARHEAD_NATIVE": switch}) for switch in ("0", "1")]
    assert runs[0].stdout and runs[0].stdout == runs[1].stdout
    assert "slow" in runs[0].stderr and "CLEARHEAD_NATIVE" in runs[0].stderr
