"""What the common harness cannot draw of DeBERTa: talking heads, two spellings of a head, soft labels, long texts."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from clearhead import hub
from clearhead.errors import ConfigError
from clearhead.models import family
from clearhead.nn import trace
from clearhead.nn.disentangled import log_bucket

from .family_deberta import REFERENCE as V1
from .family_deberta_v2 import REFERENCE as V2
from .harness import close, compare_gradients, compare_outputs, inputs, labels

SIZES = {
    "vocab_size": 31,
    "hidden_size": 12,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 24,
    "relative_attention": True,
    "pos_att_type": "c2p|p2c",
    "position_biased_input": False,
}


def opened(ref, folder, task: str, **options) -> SimpleNamespace:
    torch.manual_seed(0)
    theirs = ref.build(ref.config_class(**{**SIZES, **options}), task)
    ref.save(theirs, folder)
    ours = hub.load_model(folder)
    assert ours.task == task
    return SimpleNamespace(ref=ref, theirs=theirs, ours=ours, folder=folder, task=task)


@pytest.mark.parametrize("relative", [True, False])
def test_talking_heads(tmp_path, relative):
    c = opened(
        V1, tmp_path / "m", "token-classification", talking_head=True, **{} if relative else {"pos_att_type": []}
    )
    given = inputs(c)
    compare_outputs(c, given)
    with torch.no_grad():
        theirs = c.theirs(**given, output_attentions=True).attentions
        ours = c.ours(**given, output_attentions=True).attentions
    for a, b in zip(ours, theirs, strict=True):
        close(a, b)  # padding too: it sees all keys alike
    wanted = labels(c, given)
    theirs, ours = c.theirs(**given, **wanted), c.ours(**given, **wanted)
    close(ours.loss, theirs.loss)
    theirs.loss.backward()
    ours.loss.backward()
    compare_gradients(c)
    hub.save_model(c.ours, tmp_path / "saved")
    with torch.no_grad():
        close(V1.open(tmp_path / "saved", c.task)(**given).logits, c.theirs(**given).logits, tolerance=1e-6)


@pytest.mark.parametrize(("buckets", "reach"), [(256, 512), (32, 128), (5, 40), (64, 4096)])
def test_every_distance_falls_in_the_published_bucket(buckets, reach):
    distance = torch.arange(-2 * reach, 2 * reach + 1)
    published = make_log_bucket_position(distance, buckets, reach).long()
    assert torch.equal(log_bucket(distance, buckets, reach), published)
    assert published.unique().numel() < distance.numel()


@pytest.mark.parametrize("ref", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("time", [1, 2, 60])
def test_texts_of_one_token_and_texts_longer_than_the_distances(tmp_path, ref, time):
    options = {"position_buckets": 6, "share_att_key": True} if ref is V2 else {}
    c = opened(ref, tmp_path / "m", "features", max_relative_positions=10, **options)
    compare_outputs(c, inputs(c, time=time, pad="right" if time > 4 else None))


@pytest.mark.parametrize("ref", [V1, V2], ids=["v1", "v2"])
def test_published_files_spell_the_word_head_anew_under_a_config_that_does_not_say_so(tmp_path, ref):
    c = opened(ref, tmp_path / "m", "masked-lm", legacy=False)
    config = json.loads((c.folder / "config.json").read_text())
    del config["legacy"]
    (c.folder / "config.json").write_text(json.dumps(config))
    stored = load_file(c.folder / "model.safetensors")
    assert "lm_predictions.lm_head.dense.weight" in stored
    stored["mask_predictions.dense.weight"] = torch.ones(2, 2)
    stored["deberta.embeddings.position_embeddings.weight"] = torch.ones(24, 12)
    save_file(stored, c.folder / "model.safetensors", {"format": "pt"})
    c.ours = hub.load_model(c.folder)
    assert c.ours.config.legacy
    compare_outputs(c, inputs(c))
    hub.save_model(c.ours, tmp_path / "old")
    old = load_file(tmp_path / "old" / "model.safetensors")
    assert "cls.predictions.transform.dense.weight" in old
    assert not any(name.startswith("lm_predictions") for name in old)
    c.theirs = ref.open(tmp_path / "old", "masked-lm")
    compare_outputs(c, inputs(c))


def test_a_row_of_labels_is_how_likely_each_class_is(tmp_path):
    c = opened(V2, tmp_path / "m", "sequence-classification", num_labels=3)
    given = inputs(c, pad=None)
    given["labels"] = torch.softmax(torch.randn(3, 3), -1)
    close(c.ours(**given).loss, c.theirs(**given).loss)
    c.ours.config.problem_type = c.theirs.config.problem_type = "multi_label_classification"
    close(c.ours(**given).loss, c.theirs(**given).loss)


def test_the_convolution_is_seen_and_can_be_replaced(tmp_path):
    c = opened(V2, tmp_path / "m", "features", conv_kernel_size=3)
    given = inputs(c)
    with torch.no_grad(), trace(c.ours, "layers.0.convolution") as seen:
        c.ours(**given)
    assert seen["layers.0.convolution"].shape == (3, 9, 12)
    with torch.no_grad(), trace(c.ours, replace={"layers.0.convolution": torch.zeros_like}):
        cut = c.ours(**given).last_hidden_state
    with torch.no_grad():
        c.theirs.encoder.conv.conv.weight.zero_()
        c.theirs.encoder.conv.conv.bias.zero_()
        close(cut, c.theirs(**given).last_hidden_state)


def test_fresh_weights_are_drawn_for_every_part():
    torch.manual_seed(0)
    made = family("deberta-v2")
    model = made.make(made.config(**SIZES, conv_kernel_size=3, norm_rel_ebd="layer_norm"), "masked-lm")
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all()
        assert parameter.abs().max() < 2, name


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("deberta", {"position_buckets": 256}, "position_buckets"),
        ("deberta", {"share_att_key": True}, "share_att_key"),
        ("deberta", {"pos_att_type": "c2p|p2p"}, "p2p"),
        ("deberta", {"pos_att_type": ["c2p", "c2p"]}, "at most once"),
        ("deberta-v2", {"talking_head": True}, "talking_head"),
        ("deberta-v2", {"norm_rel_ebd": "rms"}, "norm_rel_ebd"),
        ("deberta-v2", {"conv_kernel_size": 4}, "conv_kernel_size"),
        ("deberta-v2", {"attention_head_size": 7}, "attention_head_size"),
        ("deberta-v2", {"pooler_hidden_size": 7}, "pooler_hidden_size"),
        ("deberta-v2", {"z_steps": 2}, "z_steps"),
        ("deberta-v2", {"position_buckets": 64}, "no room"),
    ],
)
def test_options_that_are_not_implemented_are_refused_by_name(name, options, said):
    with pytest.raises(ConfigError, match=said):
        family(name).config.from_dict({**SIZES, **options})


def test_the_published_configuration_of_v3_reads_as_its_preset():
    published = {
        "model_type": "deberta-v2",
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 768,
        "initializer_range": 0.02,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": "p2c|c2p",
        "layer_norm_eps": 1e-7,
        "max_relative_positions": -1,
        "position_biased_input": False,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "type_vocab_size": 0,
        "vocab_size": 128100,
    }
    made = family("deberta-v2")
    config = made.config.from_dict(published)
    assert config == made.preset("deberta-v3-base")
    assert transformers.DebertaV2Config(**config.to_dict()).attention_head_size == 64
    # 86 M in the layers and 98 M in the embedding, as the model card says
    body = made.make(config, "features", device="meta").num_parameters()
    assert 183e6 < body < 185e6
