"""Checkpoints as people have them: shards, .bin files, old names, tied weights; and every way they can be broken."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from clearhead import hub, models
from clearhead.errors import CheckpointError, ConfigError, InputError

transformers.utils.logging.disable_progress_bar()


def gpt2(**options):
    config = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20, "bos_token_id": 1,
              "eos_token_id": 1, **options}  # fmt: skip
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**config)).eval()


def bert(cls=transformers.BertForMaskedLM, **options):
    config = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
              "intermediate_size": 24, "max_position_embeddings": 20, **options}  # fmt: skip
    torch.manual_seed(1)
    return cls(transformers.BertConfig(**config)).eval()


IDS = torch.tensor([[3, 4, 5, 6]])


def same(model, folder, **options):
    ours = hub.load_model(folder, **options)
    with torch.no_grad():
        a, b = model(IDS)[0], ours(IDS)[0]
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    return ours


def edit_config(folder: Path, **changes) -> None:
    path = folder / "config.json"
    raw = json.loads(path.read_text())
    raw.update(changes)
    path.write_text(json.dumps({k: v for k, v in raw.items() if v != "remove"}))


def edit_weights(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    changed = change(dict(tensors))
    save_file({k: v.contiguous() for k, v in changed.items()}, folder / "model.safetensors")


# --- forms a checkpoint can have ---------------------------------------------------------------------------------


def test_sharded_safetensors(tmp_path):
    model = gpt2()
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    same(model, tmp_path)


def test_saved_shards_open_there(tmp_path):
    model = bert()
    model.save_pretrained(tmp_path / "a")
    ours = hub.load_model(tmp_path / "a")
    hub.save_model(ours, tmp_path / "b", max_shard_size=2000)
    assert (tmp_path / "b" / "model.safetensors.index.json").is_file()
    again = transformers.BertForMaskedLM.from_pretrained(tmp_path / "b").eval()
    assert torch.equal(model(IDS).logits, again(IDS).logits)


@pytest.mark.parametrize("zipped", [True, False])
def test_bin_file(tmp_path, zipped):
    model = bert()
    model.config.save_pretrained(tmp_path)
    edit_config(tmp_path, architectures=["BertForMaskedLM"])
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    same(model, tmp_path)


def test_sharded_bin(tmp_path):
    model = gpt2()
    model.config.save_pretrained(tmp_path)
    edit_config(tmp_path, architectures=["GPT2LMHeadModel"])
    state = {k: v.clone() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    names = list(state)
    parts = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for file, keys in parts.items():
        torch.save({k: state[k] for k in keys}, tmp_path / file)
    index = {"metadata": {}, "weight_map": {k: f for f, keys in parts.items() for k in keys}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    same(model, tmp_path)


def test_old_norm_names_and_counters(tmp_path):
    """gamma, beta and stored position counters, as the first published BERT files have them."""
    model = bert()
    model.save_pretrained(tmp_path)

    def old(tensors):
        renamed = {}
        for name, t in tensors.items():
            name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            renamed[name] = t
        renamed["bert.embeddings.position_ids"] = torch.arange(20)[None]
        return renamed

    edit_weights(tmp_path, old)
    same(model, tmp_path)


def test_first_gpt2_files(tmp_path):
    """No prefix, no output matrix, and causal masks stored as if they were weights."""
    model = gpt2()
    model.save_pretrained(tmp_path)

    def old(tensors):
        renamed = {name.removeprefix("transformer."): t for name, t in tensors.items()}
        for n in range(2):
            renamed[f"h.{n}.attn.bias"] = torch.ones(1, 1, 20, 20).tril()
            renamed[f"h.{n}.attn.masked_bias"] = torch.tensor(-1e4)
        return renamed

    edit_weights(tmp_path, old)
    edit_config(tmp_path, n_ctx=20)
    same(model, tmp_path)


def test_body_alone_and_heads_beside_it(tmp_path, caplog):
    model = bert(transformers.BertForPreTraining)
    model.save_pretrained(tmp_path)
    ours = hub.load_model(tmp_path, task="features")
    with torch.no_grad():
        a, b = model.bert(IDS), ours(IDS)
    torch.testing.assert_close(a.last_hidden_state, b.last_hidden_state)
    torch.testing.assert_close(a.pooler_output, b.pooler_output)
    masked = hub.load_model(tmp_path, task="masked-lm")
    torch.testing.assert_close(masked(IDS).logits, model(IDS).prediction_logits, rtol=1e-5, atol=1e-5)


def test_new_head_is_drawn_and_said(tmp_path, caplog):
    bert().save_pretrained(tmp_path)
    edit_config(tmp_path, id2label={"0": "a", "1": "b", "2": "c"}, label2id="remove")
    ours = hub.load_model(tmp_path, task="sequence-classification")
    assert "start from random values" in caplog.text
    assert "classifier.weight" in caplog.text
    assert "pooler.dense.weight" in caplog.text
    logits = ours(IDS).logits
    assert logits.shape == (1, 3)
    assert logits.isfinite().all()
    assert 0.001 < ours.head.output.weight.std() < 0.1


def test_features_without_a_stored_pooler_have_none(tmp_path):
    bert().save_pretrained(tmp_path)
    ours = hub.load_model(tmp_path, task="features")
    assert ours(IDS).pooler_output is None
    hub.save_model(ours, tmp_path / "again")
    assert hub.load_model(tmp_path / "again")(IDS).pooler_output is None


# --- tied weights ------------------------------------------------------------------------------------------------


def test_tied_weights_are_one_tensor(tmp_path):
    gpt2().save_pretrained(tmp_path)
    ours = hub.load_model(tmp_path)
    assert ours.head.output.weight is ours.stack.embed.tokens.weight
    assert ours.num_parameters() == gpt2().num_parameters()
    hub.save_model(ours, tmp_path / "b")
    assert "lm_head.weight" not in load_file(tmp_path / "b" / "model.safetensors")


def test_tied_and_stored_twice(tmp_path):
    model = gpt2()
    model.save_pretrained(tmp_path)
    edit_weights(tmp_path, lambda t: {**t, "lm_head.weight": t["transformer.wte.weight"].clone()})
    assert same(model, tmp_path).config.tie_word_embeddings


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_one_table_that_is_stored_twice(side, tmp_path):
    """The same twice is fine; two that differ are refused, because one of them would be ignored."""
    sizes = {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = transformers.BartConfig(vocab_size=30, max_position_embeddings=20, **sizes, **heads)
    model = transformers.BartForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path)
    name = f"model.{side}.embed_tokens.weight"
    edit_weights(tmp_path, lambda t: {**t, name: t["model.shared.weight"].clone()})
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(hub.load_model(tmp_path)(input_ids=ids).logits, model(input_ids=ids).logits)
    edit_weights(tmp_path, lambda t: {**t, name: t["model.shared.weight"] + 1})
    with pytest.raises(CheckpointError, match=f"{side}.embed_tokens.weight, which are one matrix"):
        hub.load_model(tmp_path)


def test_tied_but_stored_different(tmp_path, caplog):
    """As transformers does: the file is believed rather than the config."""
    gpt2().save_pretrained(tmp_path)
    edit_weights(tmp_path, lambda t: {**t, "lm_head.weight": t["transformer.wte.weight"] + 1})
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    ours = same(model, tmp_path)
    assert "the file's is used" in caplog.text
    assert not ours.config.tie_word_embeddings
    hub.save_model(ours, tmp_path / "b")
    same(model, tmp_path / "b")


def test_only_the_output_matrix_is_stored(tmp_path):
    model = gpt2()
    model.save_pretrained(tmp_path)
    edit_weights(
        tmp_path,
        lambda t: {("lm_head.weight" if k == "transformer.wte.weight" else k): v for k, v in t.items()},
    )
    same(model, tmp_path)


# --- dtype, device, memory ---------------------------------------------------------------------------------------


def test_dtype_as_stored_and_as_asked(tmp_path):
    gpt2().bfloat16().save_pretrained(tmp_path)
    assert hub.load_model(tmp_path).dtype == torch.bfloat16
    wide = hub.load_model(tmp_path, dtype="float32")
    assert {p.dtype for p in wide.parameters()} == {torch.float32}
    assert hub.load_model(tmp_path, dtype=torch.float16, device="cpu").dtype == torch.float16
    with pytest.raises(InputError, match="float32"):
        hub.load_model(tmp_path, dtype="float23")


def test_mixed_dtypes_become_the_widest(tmp_path):
    model = gpt2()
    model.save_pretrained(tmp_path)
    edit_weights(tmp_path, lambda t: {k: v.half() if "mlp" in k else v for k, v in t.items()})
    assert {p.dtype for p in hub.load_model(tmp_path).parameters()} == {torch.float32}


PEAK = """
import re, sys
from pathlib import Path
import torch
from clearhead import hub
import clearhead.models.gpt2
def peak():  # of this process's own memory; getrusage would count its parent's
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
before = peak()
model = hub.load_model(Path(sys.argv[1]), dtype=sys.argv[2] or None)
with torch.no_grad():
    total = sum(float(p.sum()) for p in model.parameters())  # touch every page
model.generate(torch.arange(4)[None], max_new_tokens=2)  # which copies nothing
print(peak() - before, sum(p.numel() * p.element_size() for p in model.parameters()))
"""


@pytest.fixture(scope="module")
def large_model(tmp_path_factory):
    """200 MB."""
    folder = tmp_path_factory.mktemp("large")
    gpt2(n_embd=1024, n_layer=4, n_head=8, vocab_size=1000).save_pretrained(folder)
    return str(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's peak memory")
@pytest.mark.parametrize(("dtype", "allowed"), [("", 1.15), ("bfloat16", 1.15)])
def test_peak_memory_is_the_models_own_size(large_model, dtype, allowed):
    out = subprocess.run([sys.executable, "-c", PEAK, large_model, dtype], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    grown, size = map(float, out.stdout.split())
    assert grown < allowed * size + 30 * 2**20, f"{grown / size:.2f} × the model"


# --- broken and hostile files ------------------------------------------------------------------------------------


def test_no_config(tmp_path):
    gpt2().save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no config\.json"):
        hub.locate(tmp_path)


def test_config_is_not_json(tmp_path):
    (tmp_path / "config.json").write_text("{broken")
    with pytest.raises(ConfigError, match="not valid JSON"):
        hub.load_model(tmp_path)


def test_unknown_family_lists_the_known(tmp_path):
    gpt2().save_pretrained(tmp_path)
    edit_config(tmp_path, model_type="gpt22")
    with pytest.raises(ConfigError, match=r"Did you mean gpt2.*bert"):
        hub.load_model(tmp_path)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"use_rotary": True}, "use_rotary"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"activation_function": "prelu"}, "prelu"),
        ({"activation_function": "gelu_nwe"}, "gelu_new"),
        ({"n_embd": 17}, "n_head"),
        ({"n_embd": "16"}, "n_embd"),
        ({"n_layer": 0}, "n_layer"),
        ({"resid_pdrop": 1.5}, "resid_pdrop"),
        ({"layer_norm_epsilon": None}, "layer_norm_epsilon"),
        ({"hidden_size": 32}, "twice"),
        ({"layer_norm_epsilon": float("inf")}, "layer_norm_epsilon"),
    ],
)
def test_options_are_honoured_or_refused_by_name(tmp_path, changes, named):
    gpt2().save_pretrained(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(ConfigError, match=named):
        hub.load_model(tmp_path)


def test_unknown_option_can_be_declared_harmless(tmp_path):
    model = gpt2()
    model.save_pretrained(tmp_path)
    edit_config(tmp_path, my_note="trained on a Tuesday", nothing=None)
    with pytest.raises(ConfigError, match="ignore_options"):
        hub.load_model(tmp_path, strict=True)
    same(model, tmp_path, ignore_options=["my_note"], strict=True)


def test_missing_extra_and_misshapen_tensors_are_named(tmp_path):
    gpt2().save_pretrained(tmp_path)

    def spoil(t):
        del t["transformer.h.1.ln_1.weight"]
        t["transformer.h.0.attn.surprise"] = torch.zeros(3)
        t["transformer.h.0.mlp.c_fc.weight"] = torch.zeros(16, 63)
        return t

    edit_weights(tmp_path, spoil)
    with pytest.raises(CheckpointError) as error:
        hub.load_model(tmp_path)
    message = str(error.value)
    assert "h.1.ln_1.weight" in message
    assert "h.0.attn.surprise" in message
    assert "16×63" in message
    assert "16×64" in message


def test_vocabulary_of_another_size(tmp_path):
    gpt2().save_pretrained(tmp_path)
    edit_config(tmp_path, vocab_size=41)
    with pytest.raises(CheckpointError, match=r"40×16.*41×16"):
        hub.load_model(tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 8, 100, 2000, -1])
def test_truncated_safetensors(tmp_path, keep):
    gpt2().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        hub.load_model(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff" * 64,
        b"\x10" + b"\0" * 7 + b"not json at all!",
        (2**62).to_bytes(8, "little") + b"{}",
        b"PK\x03\x04zip",
    ],
)
def test_corrupt_safetensors(tmp_path, content):
    gpt2().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        hub.load_model(tmp_path)


class _Boobytrap:
    def __reduce__(self):
        return (os.system, ("touch BOOM",))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_pickle_with_code_is_refused_and_does_not_run(tmp_path, monkeypatch, wrapped):
    monkeypatch.chdir(tmp_path)
    gpt2().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    trap = {"transformer.wte.weight": _Boobytrap()}
    if wrapped:
        torch.save(trap, tmp_path / "pytorch_model.bin")
    else:
        (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(trap))
    with pytest.raises(CheckpointError, match="refused"):
        hub.load_model(tmp_path)
    assert not (tmp_path / "BOOM").exists()
    # the trap is real: plain unpickling springs it
    pickle.loads(pickle.dumps(_Boobytrap()))
    assert (tmp_path / "BOOM").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"abc", b"PK\x03\x04broken zip"])
def test_broken_bin(tmp_path, content):
    gpt2().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        hub.load_model(tmp_path)


@pytest.mark.parametrize("file", ["../outside.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "", "a\\b"])
def test_shard_index_pointing_outside_its_folder(tmp_path, file):
    folder = tmp_path / "model"
    gpt2().save_pretrained(folder, max_shard_size="4KB")
    index = folder / "model.safetensors.index.json"
    raw = json.loads(index.read_text())
    raw["weight_map"]["transformer.wte.weight"] = file
    index.write_text(json.dumps(raw))
    (tmp_path / "outside.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="outside the checkpoint"):
        hub.load_model(folder)


def test_shard_missing_and_index_broken(tmp_path):
    gpt2().save_pretrained(tmp_path, max_shard_size="4KB")
    shard = next(tmp_path.glob("model-00002*.safetensors"))
    content = shard.read_bytes()
    shard.unlink()
    with pytest.raises(CheckpointError, match=shard.name):
        hub.load_model(tmp_path)
    shard.write_bytes(content)
    hub.load_model(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": [1]}')
    with pytest.raises(CheckpointError, match="not a valid shard index"):
        hub.load_model(tmp_path)


def test_no_weights_names_what_is_there(tmp_path):
    gpt2().config.save_pretrained(tmp_path)
    (tmp_path / "tf_model.h5").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"tf_model\.h5"):
        hub.load_model(tmp_path)


def test_architecture_without_our_head(tmp_path):
    gpt2().save_pretrained(tmp_path)
    edit_config(tmp_path, architectures=["GPT2ForPoetry"])
    with pytest.raises(ConfigError, match=r"GPT2ForPoetry.*task="):
        hub.load_model(tmp_path, strict=True)
    with pytest.raises(InputError, match="causal-lm"):
        hub.load_model(tmp_path, task="causal-ml")


# --- saving ------------------------------------------------------------------------------------------------------


def test_save_refuses_a_folder_in_use(tmp_path):
    gpt2().save_pretrained(tmp_path / "a")
    ours = hub.load_model(tmp_path / "a")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(CheckpointError, match=r"thesis\.txt|no config\.json"):
            hub.save_model(ours, taken, overwrite=overwrite)
    assert (taken / "thesis.txt").read_text() == "years of work"
    with pytest.raises(CheckpointError, match="overwrite=True"):
        hub.save_model(ours, tmp_path / "a")
    with pytest.raises(CheckpointError, match="is a file"):
        hub.save_model(ours, taken / "thesis.txt")
    with pytest.raises(CheckpointError, match="Cannot write"):
        hub.save_model(ours, taken / "thesis.txt" / "below")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "taken"]


def test_overwrite_replaces_a_saved_model_even_the_one_in_use(tmp_path):
    gpt2().save_pretrained(tmp_path / "a")
    ours = hub.load_model(tmp_path / "a")
    with torch.no_grad():
        ours.stack.embed.positions.weight.mul_(2)
    hub.save_model(ours, tmp_path / "a", overwrite=True)
    again = hub.load_model(tmp_path / "a")
    assert torch.equal(again(IDS).logits, ours(IDS).logits)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_overwrite_keeps_what_is_no_part_of_the_model(tmp_path):
    gpt2().save_pretrained(tmp_path / "a")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    (tmp_path / "a" / "logs").mkdir()
    (tmp_path / "a" / "logs" / "run.jsonl").write_text("{}")
    hub.save_model(hub.load_model(tmp_path / "a"), tmp_path / "a", overwrite=True)
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "a" / "logs" / "run.jsonl").exists()


@pytest.mark.parametrize(
    ("tensor", "named"),
    [(torch.ones(16, 48, dtype=torch.int8), "I8"), (torch.ones(16, 48, dtype=torch.complex64), "C64")],
)
def test_weights_that_are_not_floating_point(tmp_path, tensor, named):
    gpt2().save_pretrained(tmp_path)
    edit_weights(tmp_path, lambda t: {**t, "transformer.h.0.attn.c_attn.weight": tensor})
    with pytest.raises(CheckpointError, match=rf"c_attn\.weight \({named}\)"):
        hub.load_model(tmp_path)


@pytest.mark.parametrize("options", [{"dtype": "int8"}, {"dtype": torch.int8}, {"device": "nowhere"}, {"device": 3.5}])
def test_impossible_dtypes_and_devices(tmp_path, options):
    gpt2().save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"dtype|device"):
        hub.load_model(tmp_path, **options)


def test_far_too_many_layers_is_noticed_before_they_are_built(tmp_path):
    gpt2().save_pretrained(tmp_path)
    edit_config(tmp_path, n_layer=10_000_000)
    with pytest.raises(ConfigError, match="10,000,000 layers"):
        hub.load_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "small", "option"),
    [
        ("t5", {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 8}, "num_decoder_layers"),
        ("bart", {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}, "decoder_layers"),
        ("albert", {"hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 8}, "inner_group_num"),
    ],
)
def test_so_are_too_many_layers_of_a_decoder_or_a_group(name, small, option, tmp_path):
    fam = models.family(name)
    hub.save_model(fam.make(fam.config.from_dict({"vocab_size": 12, **small})), tmp_path / "a")
    edit_config(tmp_path / "a", **{option: 10_000_000})
    with pytest.raises(ConfigError, match="10,000,000 layers"):
        hub.load_model(tmp_path / "a")


def test_sizes_that_nothing_can_hold(tmp_path):
    gpt2().save_pretrained(tmp_path)
    edit_config(tmp_path, n_embd=10**9, n_inner=2 * 10**9, vocab_size=2 * 10**9, n_head=2)
    with pytest.raises(ConfigError, match="cannot be built"):
        hub.load_model(tmp_path)


def test_git_lfs_pointer(tmp_path):
    gpt2().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        hub.load_model(tmp_path)


@pytest.mark.parametrize("where", [None, 5, ""])
def test_a_name_that_is_none(where):
    with pytest.raises(InputError, match="named by"):
        hub.locate(where)


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left on device")])
def test_a_failed_save_leaves_things_as_they_were(tmp_path, monkeypatch, existing, error):
    gpt2().save_pretrained(tmp_path / "a")
    ours = hub.load_model(tmp_path / "a")
    target = tmp_path / ("a" if existing else "new")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def full(*args, **kwargs):
        raise error

    monkeypatch.setattr("clearhead.hub.weights.save_file", full)
    with pytest.raises(CheckpointError, match="No space left"):
        hub.save_model(ours, target, overwrite=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_saved_folder_is_readable_by_others(tmp_path):
    gpt2().save_pretrained(tmp_path / "a")
    hub.save_model(hub.load_model(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "b").stat().st_mode & 0o055 == 0o055
    assert len({path.stat().st_mode for path in (tmp_path / "b").iterdir()}) == 1  # the weights like the rest
