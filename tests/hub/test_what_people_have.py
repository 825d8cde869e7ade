"""Checkpoints as people really have them: keys, heads and classes of their own, files that do not say what they are.

What opens has the numbers that transformers gives for the part that was loaded; what would change them is refused.
"""

from __future__ import annotations

import json
import logging
import shutil
import struct
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from clearhead import hub
from clearhead.errors import CheckpointError, ClearheadError, ConfigError
from clearhead.pipeline import load
from tests.tiny import tiny

IDS = torch.tensor([[7, 9, 11, 5, 6], [8, 5, 30, 21, 14]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder for a family and a task, made once."""
    made: dict[tuple[str, str], Path] = {}
    root = tmp_path_factory.mktemp("saved")

    def folder(name: str, task: str) -> Path:
        if (name, task) not in made:
            made[name, task] = hub.save_model(tiny(name, task), root / f"{name}-{task}")
        return made[name, task]

    return folder


@pytest.fixture
def copy_of(saved, tmp_path):
    def copy(name: str, task: str, tensors=None, **keys) -> Path:
        """keys   of config.json, changed; None takes one away"""
        folder = Path(shutil.copytree(saved(name, task), tmp_path / "copy"))
        raw = json.loads((folder / "config.json").read_text()) | keys
        (folder / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if v is not None}))
        if tensors is not None:
            stored = load_file(folder / "model.safetensors") | tensors
            save_file({k: v for k, v in stored.items() if v is not None}, folder / "model.safetensors")
        return folder

    return copy


def output(model) -> torch.Tensor:
    inputs = {"input_ids": IDS, "attention_mask": MASK}
    if model.config.is_encoder_decoder if hasattr(model.config, "is_encoder_decoder") else model.is_encoder_decoder:
        inputs["decoder_input_ids"] = IDS[:, :3]
    with torch.no_grad():
        out = model(**inputs)
    return next(
        v for name in ("logits", "start_logits", "last_hidden_state") if (v := getattr(out, name, None)) is not None
    )


def is_reference(ours, folder: Path, class_name: str) -> None:
    reference = getattr(transformers, class_name).from_pretrained(folder, dtype=torch.float32).eval()
    assert ours.family.architectures[ours.task] == class_name
    got, wanted = output(ours), output(reference)
    if got.shape[:2] == MASK.shape:
        got, wanted = got[MASK.bool()], wanted[MASK.bool()]
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


def warnings_in(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# --- keys of config.json -------------------------------------------------------------------------------------------

HARMLESS = {
    "mask_token_id": 4, "eos_token_ids": [1], "author": "somebody", "license": "MIT", "created_date": "2021",
    "inputs_length": 512, "tokenizer_name": "x", "vocab_file": "vocab.txt", "cache_path": "/there", "kobert_version": 1,
    "adapters": {"adapters": {}, "config_map": {}}, "use_alibi": False, "sliding_window": None, "num_experts": 0,
    "num_key_value_heads": 3, "head_dim": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "task", "class_name"),
    [
        ("bert", "masked-lm", "BertForMaskedLM"),
        ("distilbert", "sequence-classification", "DistilBertForSequenceClassification"),
        ("xlnet", "features", "XLNetModel"),
        ("bart", "seq2seq-lm", "BartForConditionalGeneration"),
    ],
)
def test_keys_that_change_nothing_are_silent_and_kept(name, task, class_name, copy_of, tmp_path, caplog):
    folder = copy_of(name, task, **HARMLESS)
    pipe = hub.load_model(folder, strict=True)
    assert warnings_in(caplog) == []
    is_reference(pipe, folder, class_name)
    raw = json.loads((hub.save_model(pipe, tmp_path / "again") / "config.json").read_text())
    assert {key: raw.get(key) for key in HARMLESS} == HARMLESS


def test_other_keys_are_named_once_and_kept(copy_of, tmp_path, caplog):
    folder = copy_of("bert", "masked-lm", emb_size=312, layer_norm_epsilon=0.5, my_note={"made": ["by", "me"]})
    model = hub.load_model(folder)
    (said,) = warnings_in(caplog)
    assert all(
        key in said for key in ("emb_size = 312", "my_note", "layer_norm_epsilon = 0.5 (did you mean layer_norm_eps")
    )
    is_reference(model, folder, "BertForMaskedLM")  # which uses neither

    again = hub.save_model(model, tmp_path / "again")
    assert json.loads((again / "config.json").read_text())["my_note"] == {"made": ["by", "me"]}
    caplog.records.clear()
    hub.load_model(again, ignore_options=["emb_size", "my_note", "layer_norm_epsilon"])
    assert warnings_in(caplog) == []
    with pytest.raises(ConfigError, match="does not know: emb_size = 312"):
        load(folder, strict=True)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("alibi", True), ("alibi_starting_size", 512), ("use_alibi", True), ("position_embedding_type", "alibi"),
        ("use_relative_position", True), ("rotary", True), ("rotary_pct", 0.25), ("rope_theta", 10000.0),
        ("rope_scaling", {"type": "linear"}), ("sliding_window", 128), ("attention_window", [8]),
        ("num_key_value_heads", 1), ("multi_query", True), ("use_parallel_residual", True), ("qk_layernorm", True),
        ("num_local_experts", 8), ("embedding_multiplier", 12.0), ("final_logit_softcapping", 30.0), ("use_mup", True),
        ("adapters", {"adapters": {"mine": {}}}),
    ],
)  # fmt: skip
def test_what_would_change_the_numbers_is_refused_by_name(name, key, value, copy_of):
    with pytest.raises(ConfigError, match=rf"\b{key}\b"):
        hub.load_model(copy_of(name, "features", **{key: value}))


def test_few_bits_are_refused_with_what_to_do(copy_of):
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    with pytest.raises(ConfigError, match=r"quantization_config.*dequantize\(\)"):
        hub.load_model(copy_of("bert", "features", quantization_config=settings))


def test_gptq_tensors_without_a_word_in_the_configuration(copy_of):
    name = "h.0.attn.c_attn"
    packed = {f"{name}.weight": None, f"{name}.qweight": torch.zeros(3, 72, dtype=torch.int32)}
    with pytest.raises(CheckpointError, match=r"few bits.*quantize="):
        hub.load_model(copy_of("gpt2", "features", packed))


def test_the_key_that_was_written_is_blamed(copy_of):
    with pytest.raises(ConfigError, match="num_hidden_layers is 0"):
        hub.load_model(copy_of("gpt2", "features", n_layer=None, num_hidden_layers=0))


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_a_dtype_that_is_none_is_named(key, copy_of, caplog):
    hub.load_model(copy_of("gpt2", "features", **{key: "foo"}))
    assert any(f"{key} = 'foo'" in said for said in warnings_in(caplog))


# --- heads and classes of somebody's own ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "task"), [("bert", "masked-lm"), ("bert", "features"), ("gpt2", "causal-lm"), ("t5", "seq2seq-lm")]
)
def test_tensors_of_a_head_of_ones_own_are_listed(name, task, copy_of, caplog):
    folder = copy_of(name, task, {"crf.transitions": torch.ones(3, 3), "my_head.0.weight": torch.ones(2)})
    model = hub.load_model(folder)
    assert any("crf.transitions, my_head.0.weight" in said for said in warnings_in(caplog))
    is_reference(model, folder, model.family.architectures[task])
    with pytest.raises(CheckpointError, match=r"crf\.transitions"):
        hub.load_model(folder, strict=True)


@pytest.mark.parametrize("keys", [{}, {"architectures": ["Mine"]}, {"my_note": 1}])
@pytest.mark.parametrize(
    ("name", "task", "tensor"),
    [
        ("bert", "masked-lm", "bert.encoder.layer.3.output.dense.bias"),
        ("bert", "features", "encoder.layer.3.output.dense.bias"),
        ("bert", "masked-lm", "bert.embeddings.letters.weight"),
        ("gpt2", "features", "h.3.ln_1.weight"),
        ("t5", "features", "decoder.block.2.layer.0.layer_norm.weight"),
        ("gpt2", "causal-lm", "lm_head.bias"),
    ],
)
def test_a_layer_too_many_is_an_error(name, task, tensor, keys, copy_of):
    with pytest.raises(CheckpointError) as error:
        hub.load_model(copy_of(name, task, {tensor: torch.zeros(24)}, **keys), task=task)
    assert tensor in str(error.value)


@pytest.mark.parametrize("keys", [{}, {"architectures": ["Mine"]}, {"architectures": None, "model_type": None}])
@pytest.mark.parametrize(
    ("name", "task", "tensor"),
    [
        ("bert", "masked-lm", "bert.encoder.layer.1.output.dense.bias"),
        ("t5", "seq2seq-lm", "decoder.block.0.layer.0.layer_norm.weight"),
    ],
)
def test_a_missing_tensor_is_an_error(name, task, tensor, keys, copy_of):
    with pytest.raises(ClearheadError):
        hub.load_model(copy_of(name, task, {tensor: None}, **keys))


@pytest.mark.parametrize(
    ("name", "task", "class_name"),
    [
        ("bert", "masked-lm", "BertForMaskedLM"),
        ("bert", "pretraining", "BertForPreTraining"),
        ("bert", "sequence-classification", "BertForSequenceClassification"),
        ("bert", "token-classification", "BertForTokenClassification"),
        ("bert", "question-answering", "BertForQuestionAnswering"),
        ("bert", "causal-lm", "BertLMHeadModel"),
        ("bert", "features", "BertModel"),
        ("roberta", "sequence-classification", "RobertaForSequenceClassification"),
        ("electra", "masked-lm", "ElectraForMaskedLM"),
        ("gpt2", "causal-lm", "GPT2LMHeadModel"),
        ("gpt2", "features", "GPT2Model"),
        ("t5", "encoder-features", "T5EncoderModel"),
        ("bart", "seq2seq-lm", "BartForConditionalGeneration"),
        ("marian", "causal-lm", "MarianForCausalLM"),
    ],
)
def test_a_class_of_ones_own_is_what_its_tensors_show(name, task, class_name, copy_of, caplog):
    folder = copy_of(name, task, architectures=["MyOwnThing"])
    model = hub.load_model(folder)
    assert model.task == task
    assert any("MyOwnThing" in said and task in said for said in warnings_in(caplog))
    if task not in ("pretraining", "encoder-features"):
        is_reference(model, folder, class_name)


def test_a_classifier_of_another_shape_is_left_unread(copy_of, caplog):
    model = hub.load_model(
        copy_of("bert", "sequence-classification", {"classifier.weight": torch.ones(9, 24)}, architectures=["Mine"])
    )
    assert model.task == "features"
    assert any("classifier.weight" in said for said in warnings_in(caplog))


def test_labels_of_words_show_a_tagger(copy_of):
    folder = copy_of("bert", "sequence-classification", architectures=["Mine"], id2label={"0": "O", "1": "B-PER"},
                     label2id=None)  # fmt: skip
    assert hub.load_model(folder).task == "token-classification"


def test_tied_heads_are_believed_in_unless_another_shows(saved, tmp_path):
    model = hub.load_model(saved("gpt2", "causal-lm"))
    model.config.tie_word_embeddings = True
    model.head.output.weight = model.stack.embed.tokens.weight
    folder = hub.save_model(model, tmp_path / "tied")
    raw = json.loads((folder / "config.json").read_text()) | {"architectures": ["Mine"]}
    (folder / "config.json").write_text(json.dumps(raw))
    stored = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in stored
    assert hub.load_model(folder).task == "causal-lm"
    save_file(stored | {"value_head.weight": torch.ones(1, 24)}, folder / "model.safetensors")
    assert hub.load_model(folder).task == "features"


# --- files that do not say what they are ----------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("bert", "masked-lm"), ("bert", "features"), ("roberta", "masked-lm"), ("distilbert", "masked-lm"),
        ("albert", "masked-lm"), ("gpt2", "causal-lm"), ("openai-gpt", "causal-lm"), ("xlm", "masked-lm"),
        ("xlnet", "permutation-lm"), ("t5", "seq2seq-lm"), ("ctrl", "causal-lm"),
    ],
)  # fmt: skip
def test_a_family_is_guessed_and_said(name, task, named, copy_of, saved, caplog):
    keys = {"model_type": None} if named else {"model_type": None, "architectures": None}
    model = hub.load_model(copy_of(name, task, **keys))
    assert any(model.family.title in said and "model_type" in said for said in warnings_in(caplog))
    assert (model.family.name, model.task) == (name, task)
    torch.testing.assert_close(output(model), output(hub.load_model(saved(name, task))), rtol=0, atol=0)


def test_a_configuration_alone_is_guessed_by_its_keys(tmp_path):
    google = {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "vocab_size": 21128, "type_vocab_size": 2, "max_position_embeddings": 512, "directionality": "bidi",
    }  # fmt: skip
    for keys, name in (
        (google, "bert"),
        (google | {"max_position_embeddings": 514, "type_vocab_size": 1}, "roberta"),
        (google | {"embedding_size": 128, "num_hidden_groups": 1, "inner_group_num": 1}, "albert"),
        ({"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}, "gpt2"),
        ({"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 512, "afn": "gelu"}, "openai-gpt"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(keys))
        assert hub.read_config(tmp_path)[0].name == name


def test_a_guess_builds_no_million_layers(copy_of):
    with pytest.raises(ConfigError):
        hub.load_model(copy_of("bert", "features", model_type=None, architectures=None, num_hidden_layers=10**9))


def test_the_usual_head_is_taken_without_a_word(copy_of, caplog):
    assert hub.load_model(copy_of("bert", "pretraining", architectures=None)).task == "masked-lm"
    assert warnings_in(caplog) == []


def test_what_cannot_be_told_is_not_guessed(copy_of, tmp_path):
    with pytest.raises(ConfigError, match="model_type"):  # the tensors and keys of M2M-100, too
        hub.load_model(copy_of("pegasus", "seq2seq-lm", model_type=None, architectures=None))
    (tmp_path / "config.json").write_text('{"colour": "blue", "hidden_size": 8}')
    with pytest.raises(ConfigError, match="model_type"):
        hub.read_config(tmp_path)
    nezha = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "use_relative_position": True}
    (tmp_path / "config.json").write_text(json.dumps(nezha))
    with pytest.raises(ConfigError, match="use_relative_position"):
        hub.read_config(tmp_path)


# --- files that cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2**63, 2**62, 2**31, 10**400])
@pytest.mark.parametrize("key", ["n_embd", "n_positions", "vocab_size", "num_labels", "bos_token_id"])
def test_sizes_that_no_number_of_the_machine_holds(key, size, copy_of):
    with pytest.raises(ConfigError, match=key):
        hub.load_model(copy_of("gpt2", "features", **{key: size}, id2label=None, label2id=None))


@pytest.mark.parametrize("named", [[["BertModel"]], [[[]]], {"a": 1}, [5], 5])
def test_architectures_that_are_no_names(named, copy_of):
    with pytest.raises(ConfigError, match="architectures is"):
        hub.load_model(copy_of("bert", "features", architectures=named))


def test_names_of_shards_that_no_file_can_have(copy_of):
    folder = copy_of("bert", "features")
    (folder / "model.safetensors").unlink()
    for name in ("x" * 5000, "é" * 200):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"t" * 5000: name}}))
        with pytest.raises(CheckpointError, match="longer than a file can have") as error:
            hub.load_model(folder)
        assert len(str(error.value)) < 1000


@pytest.mark.parametrize("claim", ["header", "tensor"])
def test_a_file_that_claims_forty_gigabytes(claim, copy_of):
    size = 40 * 2**30
    header = json.dumps({"a": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    folder = copy_of("bert", "features")
    length = size if claim == "header" else len(header)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + header)
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        hub.load_model(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_a_small_file_of_forty_gigabytes(name, copy_of):
    folder = copy_of("bert", "features")
    (folder / "model.safetensors").unlink()
    with (folder / name).open("wb") as file:
        file.truncate(40 * 2**30)  # a hole: it takes no room
    with pytest.raises(ClearheadError, match="40960 MB; files of its kind"):
        hub.load_model(folder)


def test_a_computed_table_that_fills_the_memory(copy_of):
    with pytest.raises(ConfigError, match="max_position_embeddings"):
        hub.load_model(copy_of("marian", "seq2seq-lm", max_position_embeddings=10**9))


@pytest.mark.parametrize("keys", [{"num_layers": 10**9}, {"attention_types": [[["global"], 10**12]]}])
def test_lists_of_a_billion_layers_are_not_made(keys, copy_of):
    with pytest.raises(ConfigError, match="layers"):
        hub.load_model(copy_of("gpt_neo", "features", **keys, attention_layers=None))


def test_negative_epsilon(copy_of):
    with pytest.raises(ConfigError, match="layer_norm_eps is -1"):
        hub.load_model(copy_of("bert", "features", layer_norm_eps=-1.0))


def test_a_head_that_is_not_there_says_how_to_load_the_rest(copy_of):
    folder = copy_of("bert", "sequence-classification", architectures=["BertForMaskedLM"])
    with pytest.raises(CheckpointError, match=r'cls\.predictions.*task="features" loads the rest'):
        hub.load_model(folder)
    assert hub.load_model(folder, task="features").task == "features"


# --- files saved as a part of something else ------------------------------------------------------------------------


def renamed(folder: Path, prefix: str, more: dict[str, torch.Tensor] | None = None) -> Path:
    stored = {prefix + name: tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(stored | (more or {}), folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "question_encoder.bert_model."])
@pytest.mark.parametrize(
    ("name", "task"),
    [("bert", "masked-lm"), ("bert", "features"), ("gpt2", "causal-lm"), ("t5", "seq2seq-lm"), ("bart", "features")],
)
def test_what_stands_before_every_name_is_left_out(name, task, prefix, copy_of, saved, caplog):
    folder = renamed(copy_of(name, task), prefix, {"v_head.weight": torch.ones(2)})
    model = hub.load_model(folder)
    assert any(repr(prefix) in said for said in warnings_in(caplog))
    assert any("v_head.weight" in said for said in warnings_in(caplog))
    torch.testing.assert_close(output(model), output(hub.load_model(saved(name, task))), rtol=0, atol=0)
    with pytest.raises(CheckpointError, match=prefix):
        hub.load_model(folder, strict=True)


def test_another_familys_body_is_not_taken_for_ones_own(copy_of):
    with pytest.raises(CheckpointError, match="missing"):  # positions of a RoBERTa count otherwise
        hub.load_model(copy_of("roberta", "masked-lm", model_type="bert"))


def test_two_parts_are_not_told_apart(copy_of):
    folder = copy_of("bert", "features")
    stored = load_file(folder / "model.safetensors")
    save_file({side + name: t.clone() for side in ("query.", "passage.") for name, t in stored.items()},
              folder / "model.safetensors")  # fmt: skip
    with pytest.raises(CheckpointError, match="missing"):
        hub.load_model(folder)


# --- values that mean nothing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said", "labels"),
    [
        (
            {"num_labels": 3, "id2label": {"0": "a", "1": "b"}},
            "num_labels is 3, but id2label names 2",
            ["LABEL_0", "LABEL_1", "LABEL_2"],
        ),
        ({"id2label": {"1": "a", "2": "b", "3": "c"}}, "not 0, 1, 2", ["LABEL_0", "a", "b"]),
        ({"problem_type": "ner", "id2label": {"0": "a", "1": "b", "2": "c"}}, "problem_type is 'ner'", "abc"),
    ],
)
def test_labels_that_contradict_themselves_are_said(keys, said, labels, copy_of, caplog):
    three = {"classifier.weight": torch.randn(3, 24), "classifier.bias": torch.randn(3)}
    folder = copy_of("bert", "sequence-classification", three, label2id=None, **keys)
    model = hub.load_model(folder)
    assert list(model.config.id2label.values()) == list(labels)
    assert any(said in sentence for sentence in warnings_in(caplog))
    is_reference(model, folder, "BertForSequenceClassification")
    with pytest.raises(ConfigError, match=said):
        hub.load_model(folder, strict=True)


@pytest.mark.parametrize(
    ("name", "task", "keys"),
    [
        ("bart", "seq2seq-lm", {"classifier_dropout": None, "attention_dropout": None, "init_std": None}),
        ("bart", "seq2seq-lm", {"scale_embedding": None, "encoder_layerdrop": None}),
        ("marian", "seq2seq-lm", {"static_position_embeddings": None}),
        ("bert", "masked-lm", {"pad_token_id": -1}),
        ("mpnet", "features", {"pad_token_id": 0}),
    ],
)
def test_nulls_and_no_padding(name, task, keys, copy_of, saved, caplog):
    folder = copy_of(name, task)
    raw = json.loads((folder / "config.json").read_text()) | keys
    (folder / "config.json").write_text(json.dumps(raw))
    model = hub.load_model(folder)
    assert warnings_in(caplog) == []
    is_reference(model, folder, model.family.architectures[task])


@pytest.mark.parametrize(("name", "title"), [("gpt2", "GPT2"), ("bart", "Bart")])
def test_a_classifier_without_a_class_is_not_taken_for_a_writer(name, title, saved, tmp_path, caplog):
    """Whose output could be tied to the embeddings, and would need no tensors of its own."""
    model = hub.load_model(saved(name, "sequence-classification"))
    model.config.tie_word_embeddings = True
    folder = hub.save_model(model, tmp_path / "tied")
    raw = json.loads((folder / "config.json").read_text())
    del raw["architectures"]
    (folder / "config.json").write_text(json.dumps(raw))
    assert hub.load_model(folder).task == "sequence-classification"
    assert any(f"{title}ForSequenceClassification" in said for said in warnings_in(caplog))
