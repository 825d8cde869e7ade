"""LoRA: only the detours learn, merging changes nothing, and adapters are files that PEFT knows."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from clearhead import models
from clearhead.errors import CheckpointError, InputError
from clearhead.hub import load_model, save_model
from clearhead.hub.adapter import load_adapter, save_adapter
from clearhead.nn.fast.quantized import quantize_
from clearhead.nn.linear import Linear
from clearhead.nn.lora import LoRALinear, adapted, lora_state, merge
from clearhead.train.engine.lora import add_lora, load_lora_state
from clearhead.train.engine.optim import decayed, optimizer

TINY = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
FAMILIES = {
    "gpt2": {},
    "bert": {"intermediate_size": 24},
    "albert": {"intermediate_size": 24, "embedding_size": 8},
    "t5": {"intermediate_size": 24, "head_dim": 8},
}
IDS = torch.tensor([[5, 6, 7, 8, 9, 3], [8, 2, 5, 9, 4, 3]])


def make(name="gpt2", task=None, **more):
    family = models.family(name)
    return family.make(family.config(**TINY | FAMILIES[name] | more), task)


def answer(model):
    with torch.no_grad():
        given = {"decoder_input_ids": IDS} if hasattr(model, "decoder") else {}
        return model.eval()(input_ids=IDS, **given).logits


def learnt(model):
    """Adapters as training would leave them: no longer zero."""
    with torch.no_grad():
        for n, (_, module) in enumerate(adapted(model)):
            module.lora_b.normal_(std=0.3, generator=torch.Generator().manual_seed(n))
    return model


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_changes_at_first_and_merging_changes_nothing(name):
    model = make(name)
    plain = answer(model)
    kinds = [type(module) for module in model.modules()]
    learns = {own: p.requires_grad for own, p in model.named_parameters()}
    add_lora(model, rank=4, alpha=8)
    assert torch.equal(answer(model), plain)
    adapted_answer = answer(learnt(model))
    assert (adapted_answer - plain).abs().max() > 1e-3
    assert merge(model) is model
    torch.testing.assert_close(answer(model), adapted_answer, rtol=1e-4, atol=1e-5)
    assert [type(module) for module in model.modules()] == kinds
    assert {own: p.requires_grad for own, p in model.named_parameters()} == learns


@pytest.mark.parametrize("name", FAMILIES)
def test_only_the_detours_learn(name):
    model = add_lora(make(name), rank=2)
    before = copy.deepcopy(model.state_dict())
    opt = optimizer(model, lr=0.05, weight_decay=0.1)
    assert all(".lora_" in own for own in opt.names)
    assert set(opt.names.values()) <= decayed(model)
    model.train()
    losses = []
    for _ in range(4):
        loss = model(input_ids=IDS, labels=IDS).loss
        loss.backward()
        assert all((p.grad is not None) == (".lora_" in own) for own, p in model.named_parameters())
        opt.step()
        opt.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    moved = {own for own, tensor in model.state_dict().items() if not torch.equal(tensor, before[own])}
    assert moved == {own for own in model.state_dict() if ".lora_" in own}


def test_which_matrices():
    assert [name for name, _ in adapted(add_lora(make("gpt2")))] == [f"stack.layers.{n}.attention.qkv" for n in (0, 1)]
    bert = add_lora(make("bert"))
    assert {name.rpartition(".")[2] for name, _ in adapted(bert)} == {"query", "value"}
    t5 = {name for name, _ in adapted(add_lora(make("t5")))}
    assert {"encoder.layers.0.attention.query", "decoder.layers.1.cross_attention.value"} <= t5
    chosen = add_lora(make("bert"), targets=["layers.1.feedforward.up|down", "head.**.dense"])
    wanted = {"head.transform.dense", "stack.layers.1.feedforward.up", "stack.layers.1.feedforward.down"}
    assert {name for name, _ in adapted(chosen)} == wanted


def test_layers_that_share_a_matrix_share_its_detour():
    model = add_lora(make("albert"))
    first, second = (layer.attention.query for layer in model.stack.layers)
    assert first.lora_a is second.lora_a
    merge(learnt(model))
    assert model.stack.layers[0].attention.query.weight is model.stack.layers[1].attention.query.weight


def test_dropout_and_precision():
    model = add_lora(make().bfloat16(), rank=2, dropout=0.5)
    module = next(module for _, module in adapted(learnt(model)))
    assert module.lora_a.dtype is torch.float32
    x = torch.randn(3, 16).bfloat16()
    assert module(x).dtype is torch.bfloat16
    assert torch.equal(module(x), module(x))
    model.train()
    assert not torch.equal(module(x), module(x))


def test_writing_goes_around_too():
    """The fast ways through a layer must see that a detour came and went."""
    model = make()
    ids = IDS[:1]
    plain = model.generate(ids, max_new_tokens=8, do_sample=False)
    add_lora(model, alpha=64)
    learnt(model)
    text = ids
    for _ in range(8):
        with torch.no_grad():
            text = torch.cat([text, model(input_ids=text).logits[:, -1:].argmax(-1)], 1)
    written = model.generate(ids, max_new_tokens=8, do_sample=False)
    assert written.tolist() == text.tolist()
    assert written.tolist() != plain.tolist()
    assert merge(model).generate(ids, max_new_tokens=8, do_sample=False).tolist() == text.tolist()


def test_state():
    model = learnt(add_lora(make("bert", "sequence-classification"), modules_to_save=["head"]))
    state = {name: tensor.clone() for name, tensor in lora_state(model).items()}
    assert {"head.output.weight", "stack.layers.0.attention.query.lora_a"} <= set(state)
    assert not any(name.endswith("query.weight") for name in state)
    base = make("bert", "sequence-classification")
    base.load_state_dict({k: t for k, t in model.state_dict().items() if ".lora_" not in k})
    again = add_lora(base, modules_to_save=["head"])
    load_lora_state(again, state)
    assert torch.equal(answer(again), answer(model))
    with pytest.raises(CheckpointError, match=r"head\.output"):
        load_lora_state(add_lora(make("bert", "sequence-classification")), state)


@pytest.mark.parametrize(
    ("name", "task", "also"),
    [
        ("gpt2", "causal-lm", ()),
        ("bert", "sequence-classification", ("head",)),
        ("t5", "seq2seq-lm", ()),
        ("albert", "masked-lm", ()),
    ],
)
def test_adapters_on_disk(name, task, also, tmp_path):
    model = make(name, task)
    save_model(model, tmp_path / "base")
    model = learnt(add_lora(model, rank=3, alpha=6, dropout=0.1, modules_to_save=also))
    if also:
        with torch.no_grad():
            model.head.output.weight.add_(1.0)
    save_adapter(model, tmp_path / "adapter", base="some/model")
    again = load_adapter(load_model(tmp_path / "base"), tmp_path / "adapter")
    assert torch.equal(answer(again), answer(model))
    assert {n for n, p in again.named_parameters() if p.requires_grad} == {
        n for n, p in model.named_parameters() if p.requires_grad
    }
    torch.testing.assert_close(answer(merge(again)), answer(model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "task", "auto", "module", "targets"),
    [
        ("gpt2", "causal-lm", "AutoModelForCausalLM", "transformer.h.1.attn.c_attn", ["c_attn"]),
        (
            "bert",
            "sequence-classification",
            "AutoModelForSequenceClassification",
            "bert.encoder.layer.0.attention.self.query",
            ["query", "value"],
        ),
        ("t5", "seq2seq-lm", "AutoModelForSeq2SeqLM", "decoder.block.1.layer.1.EncDecAttention.v", ["q", "v"]),
    ],
)
def test_the_files_mean_what_pefts_mean(name, task, auto, module, targets, tmp_path):
    """W + alpha/r · B A in the module of that name, computed by hand in the reference implementation."""
    import transformers

    model = make(name, task)
    save_model(model, tmp_path / "base")
    also = ["head"] if task == "sequence-classification" else []
    model = learnt(add_lora(model, rank=3, alpha=6, modules_to_save=also))
    if also:
        with torch.no_grad():
            model.head.output.bias.add_(1.0)
    save_adapter(model, tmp_path / "adapter")

    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 3, 6)
    assert config["target_modules"] == targets
    assert config["fan_in_fan_out"] == (name == "gpt2")
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert tensors[f"base_model.model.{module}.lora_A.weight"].shape[0] == 3

    reference = getattr(transformers, auto).from_pretrained(tmp_path / "base").eval()
    with torch.no_grad():
        for key, tensor in tensors.items():
            own = key.removeprefix("base_model.model.")
            if own.endswith(".lora_A.weight"):
                stem = own.removesuffix(".lora_A.weight")
                assert stem.rpartition(".")[2] in targets
                change = tensors[key.replace("lora_A", "lora_B")] @ tensor * config["lora_alpha"] / config["r"]
                weight = reference.get_submodule(stem).weight
                weight += change.t() if config["fan_in_fan_out"] else change
            elif not own.endswith(".lora_B.weight"):
                assert own.rpartition(".")[0] in config["modules_to_save"]
                reference.get_parameter(own).copy_(tensor)
        given = {"decoder_input_ids": IDS} if name == "t5" else {}
        theirs = reference(input_ids=IDS, **given).logits
    torch.testing.assert_close(answer(model), theirs, rtol=1e-4, atol=1e-5)


def test_target_modules_name_only_what_is_adapted(tmp_path):
    model = learnt(add_lora(make("t5"), targets=["encoder.layers.*.attention.query"]))
    save_adapter(model, tmp_path)
    named = json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"]
    assert named == [f"encoder.block.{n}.layer.0.SelfAttention.q" for n in (0, 1)]


def test_a_save_that_fails_leaves_the_adapter_before(tmp_path, monkeypatch):
    save_adapter(learnt(add_lora(make())), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full_disk(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dumps", full_disk)  # the weights are written by then, the configuration is not
    with pytest.raises(CheckpointError, match="No space left"):
        save_adapter(learnt(add_lora(make(), rank=2)), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_wrong_adapters_are_refused(tmp_path):
    save_adapter(learnt(add_lora(make())), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    with pytest.raises(CheckpointError, match="nothing of that name"):
        load_adapter(make("bert"), tmp_path)
    with pytest.raises(CheckpointError, match=r"but this model needs \(8, 24\)"):
        load_adapter(make(hidden_size=24), tmp_path)
    for key, value in {"peft_type": "IA3", "use_dora": True, "bias": "all", "rank_pattern": {"x": 3}}.items():
        (tmp_path / "adapter_config.json").write_text(json.dumps(config | {key: value}))
        with pytest.raises(CheckpointError, match="is read here"):
            load_adapter(make(), tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"use_rslora": True}))
    for _, module in adapted(load_adapter(make(), tmp_path)):
        assert module.scale == pytest.approx(16 / 8**0.5)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    save_file({k: t for k, t in tensors.items() if "lora_A" in k}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="lora_B"):
        load_adapter(make(), tmp_path)
    with pytest.raises(CheckpointError, match="no adapter"):
        load_adapter(make(), tmp_path / "nowhere")


def test_mistakes_are_named():
    with pytest.raises(InputError, match=r"stack\.layers\.\*\.attention\.qkv"):
        add_lora(make(), targets=["attention.querry"])
    with pytest.raises(InputError, match="token table"):
        add_lora(make(), targets=["head.output"])
    with pytest.raises(InputError, match="already"):
        add_lora(add_lora(make()))
    with pytest.raises(InputError, match="head is 'head'"):
        add_lora(make(), modules_to_save=["heads"])
    with pytest.raises(InputError, match="rank"):
        add_lora(make(), rank=0)
    with pytest.raises(InputError, match="add_lora before"):
        save_adapter(make(), "never-written")
    small = make(hidden_size=64)
    quantize_(small, "int8")
    with pytest.raises(InputError, match="without quantize="):
        add_lora(small)
    module = next(module for _, module in adapted(add_lora(make())))
    assert isinstance(module, Linear) and isinstance(module, LoRALinear)
    assert "rank=8, scale=2" in repr(module)
