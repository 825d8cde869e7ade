"""What is particular to T5 and its kin: presets, float16, dropout, far distances, and the many forms of old files."""

import json
import random
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

from clearhead import hub
from clearhead.errors import ConfigError
from clearhead.models import family
from clearhead.nn import trace

from .families import FAMILIES
from .harness import case, close, inputs

NAMES = ("t5", "mt5", "umt5")
CONFIGS = {"t5": transformers.T5Config, "mt5": transformers.MT5Config, "umt5": transformers.UMT5Config}


@pytest.mark.parametrize(("name", "preset"), [(n, p) for n in NAMES for p in family(n).presets])
def test_presets_have_the_references_total(name, preset):
    """The reference ties the output matrix of any model it makes, so what is untied adds one table."""
    fam = family(name)
    config = fam.preset(preset)
    ours = fam.make(config, device="meta")
    values = {k: v for k, v in config.to_dict().items() if k not in ("id2label", "label2id")}
    with torch.device("meta"):
        theirs = FAMILIES[name].classes["seq2seq-lm"](CONFIGS[name](**values))
    total = sum(p.numel() for p in theirs.parameters())
    assert ours.num_parameters() == total + (
        0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    )


@pytest.mark.parametrize(
    ("preset", "published"),
    [
        ("t5-small", 60_506_624),
        ("t5-base", 222_903_552),
        ("t5-large", 737_668_096),
        ("t5-3b", 2_851_598_336),
        ("t5-11b", 11_307_321_344),
        ("t5-v1_1-small", 76_961_152),
        ("t5-v1_1-base", 247_577_856),
        ("mt5-small", 300_176_768),
        ("mt5-base", 582_401_280),
    ],
)
def test_presets_have_the_published_total(preset, published):
    fam = family(preset.split("-")[0])
    assert fam.make(fam.preset(preset), device="meta").num_parameters() == published


@pytest.mark.parametrize("name", NAMES)
def test_far_distances_share_buckets(name):
    """Longer than relative_attention_max_distance, on both sides."""
    c = case(name, "seq2seq-lm", 0)
    ids, written = torch.randint(3, 31, (1, 300)), torch.randint(3, 31, (1, 200))
    with torch.no_grad():
        close(c.ours(ids, decoder_input_ids=written).logits, c.theirs(ids, decoder_input_ids=written).logits)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", ["seq2seq-lm", "sequence-classification", "token-classification"])
def test_dropout_acts_in_the_same_places(name, task, monkeypatch):
    """With dropout made deterministic (it scales instead), training-mode outputs agree, so no place is missing."""
    rng = random.Random(5)
    ref = FAMILIES[name]
    values = ref.draw(rng, task) | {"dropout_rate": 0.3, "classifier_dropout": 0.4}
    fam = family(name)
    ours = fam.make(fam.config.from_dict(values), task)
    monkeypatch.setattr(F, "dropout", lambda x, p=0.5, training=True, inplace=False: x * (1 - p) if training else x)
    config = ref.config_class(**values)
    config._attn_implementation = "eager"
    theirs = ref.classes[task](config)
    map_ = fam.checkpoint_map(ours.config, task)
    published = dict(theirs.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for entry in map_.entries:
            for own, other in zip(entry.ours, entry.theirs, strict=True):
                tensor = published[map_.published_name(other, entry, True)]
                ours.get_parameter(own).copy_(tensor)
    if task == "seq2seq-lm":
        ours.head.output.weight = ours.decoder.embed.tokens.weight
        theirs.config.tie_word_embeddings = values["tie_word_embeddings"]
    given = inputs(SimpleNamespace(task=task, ours=ours), pad="right")
    ours.train()
    theirs.train()
    with torch.no_grad(), trace(ours, "**.weights"):  # the explicit path: the fused one draws its own
        close(ours(**given).logits, theirs(**given).logits)


@pytest.mark.parametrize("name", NAMES)
def test_float16_keeps_the_way_down_in_fp32(name, tmp_path):
    c = case(name, "seq2seq-lm", 0)
    half = hub.load_model(c.folder, dtype="float16")
    kept = {n for n, p in half.named_parameters() if p.dtype == torch.float32}
    assert kept == {n for n, _ in half.named_parameters() if n.endswith("feedforward.down.weight")}
    assert half.dtype == torch.float16
    theirs = type(c.theirs).from_pretrained(c.folder, dtype=torch.float16, attn_implementation="eager").eval()
    theirs.config.tie_word_embeddings = c.theirs.config.tie_word_embeddings
    given = inputs(c, pad="right")
    with torch.no_grad():
        full, ours_half, theirs_half = (m(**given).logits.float() for m in (c.ours, half, theirs))
    # Rounding differs from step to step, so two float16 models agree no better than each does with fp32.
    assert (ours_half - full).norm() <= 1.5 * (theirs_half - full).norm()
    assert (ours_half - theirs_half).norm() < 0.02 * full.norm()
    assert half(**given).logits.dtype == torch.float16
    half.generate(given["input_ids"], max_new_tokens=3)

    hub.save_model(half, tmp_path / "half")
    again = hub.load_model(tmp_path / "half")  # as stored: the wide tensors do not widen the rest
    assert {n: p.dtype for n, p in again.named_parameters()} == {n: p.dtype for n, p in half.named_parameters()}
    assert {p.dtype for p in hub.load_model(c.folder, dtype="bfloat16").parameters()} == {torch.bfloat16}


def test_float16_survives_values_that_float16_cannot_hold():
    c = case("t5", "encoder-features", 0)
    half = hub.load_model(c.folder, dtype="float16")
    with torch.no_grad():
        half.stack.layers[0].feedforward.down.weight.mul_(1e5)
        assert half(torch.randint(3, 31, (2, 9))).last_hidden_state.isfinite().all()


# ---- old and odd files


def rewritten(c, folder, change, **config):
    """The case's checkpoint with other tensors (`change` edits them in place) and other config values."""
    folder.mkdir()
    tensors = load_file(c.folder / "model.safetensors")
    change(tensors)
    save_file({k: v.clone().contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    raw = json.loads((c.folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


def hidden_of(model, given):
    with torch.no_grad():
        return model(**given).last_hidden_state


def test_the_first_files_tensors_that_nothing_reads(tmp_path):
    c = case("t5", "seq2seq-lm", 0)

    def add(tensors):
        tensors["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones(32, 4)

    model = hub.load_model(rewritten(c, tmp_path / "old", add))
    for (name, a), b in zip(model.named_parameters(), c.ours.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(
    "names",
    [
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "shared.weight"),
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
        ("decoder.embed_tokens.weight",),
    ],
)
def test_one_table_under_any_of_its_names(tmp_path, names):
    c = case("t5", "features", 0)

    def rename(tensors):
        table = tensors.pop("shared.weight")
        tensors.update(dict.fromkeys(names, table))

    model = hub.load_model(rewritten(c, tmp_path / "named", rename))
    assert model.encoder.embed.tokens.weight is model.decoder.embed.tokens.weight
    given = inputs(c)
    assert torch.equal(hidden_of(model, given), hidden_of(c.ours, given))


def test_a_table_for_each_side_is_kept(tmp_path, caplog):
    c = case("t5", "features", 0)

    def part(tensors):
        tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"] + 1

    folder = rewritten(c, tmp_path / "two", part)
    model = hub.load_model(folder)
    assert "encoder.embed_tokens.weight" in caplog.text
    theirs = transformers.T5Model.from_pretrained(folder, attn_implementation="eager").eval()
    given = inputs(c)
    close(hidden_of(model, given), hidden_of(theirs, given))
    hub.save_model(model, tmp_path / "saved")
    again = hub.load_model(tmp_path / "saved")
    assert torch.equal(hidden_of(again, given), hidden_of(model, given))


@pytest.mark.parametrize("name", NAMES)
def test_the_encoder_of_a_whole_model(name):
    c = case(name, "seq2seq-lm", 1)
    encoder = hub.load_model(c.folder, task="encoder-features")
    given = inputs(c)
    with torch.no_grad():
        whole = c.ours(**given).encoder_last_hidden_state
    given.pop("decoder_input_ids")
    assert torch.equal(hidden_of(encoder, given), whole)


def test_bodies_move_between_heads(caplog):
    """With the prefix of a classifier or without it; what the new head lacks is drawn and said."""
    labelled = case("t5", "sequence-classification", 0)
    given = inputs(labelled)
    body = hub.load_model(labelled.folder, task="features")
    decoder_ids = body.shift_right(given["input_ids"])
    with torch.no_grad():
        out = labelled.ours(**given, output_hidden_states=True)
    close(hidden_of(body, {**given, "decoder_input_ids": decoder_ids}), out.hidden_states[-1])
    tagger = hub.load_model(case("t5", "seq2seq-lm", 0).folder, task="token-classification")
    assert "classifier.weight" in caplog.text
    assert all(not p.is_meta for p in tagger.parameters())


def test_published_configs_of_version_1_1_and_of_transformers_5():
    """Untied means unscaled, unless the file says otherwise; transformers 5 says both."""
    config = family("t5").config
    assert config.from_dict({}).scale_decoder_outputs is True
    assert config.from_dict({"tie_word_embeddings": False}).scale_decoder_outputs is False
    assert (
        config.from_dict({"tie_word_embeddings": True, "scale_decoder_outputs": False}).scale_decoder_outputs is False
    )
    assert family("mt5").config.from_dict({"tie_word_embeddings": True}).scale_decoder_outputs is False
    assert config.from_dict({"num_layers": 7}).num_decoder_layers == 7
    assert config.from_dict({}).decoder_start_token_id == 0
    assert config.from_dict({"n_positions": 512, "output_past": True, "task_specific_params": {}}).head_dim == 64


def test_an_untied_file_of_transformers_5_says_tied(tmp_path):
    """Its config says tied; the file holds another matrix; the scale is as the config says."""
    c = next(c for s in range(4) if not (c := case("t5", "seq2seq-lm", s)).ours.config.tie_word_embeddings)
    folder = rewritten(c, tmp_path / "five", lambda t: None, tie_word_embeddings=True, scale_decoder_outputs=False)
    model, given = hub.load_model(folder), inputs(c)
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        assert torch.equal(model(**given).logits, c.ours(**given).logits)
        close(model(**given).logits, theirs(**given).logits)


def test_the_first_name_of_the_class(tmp_path):
    c = case("t5", "seq2seq-lm", 0)
    folder = rewritten(c, tmp_path / "first", lambda t: None, architectures=["T5WithLMHeadModel"])
    assert hub.load_model(folder).task == "seq2seq-lm"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"feed_forward_proj": "gated-glue"}, "glue"),
        ({"feed_forward_proj": "wide-relu"}, "wide-relu"),
        ({"feed_forward_proj": "gated-gelu-new"}, "gated-gelu-new"),
        ({"is_decoder": True}, "is_decoder"),
        ({"dropout_rate": 1.5}, "dropout_rate"),
        ({"num_decoder_layers": 0}, "num_decoder_layers"),
        ({"d_kv": 0}, "d_kv"),
        ({"use_flux": 3}, "use_flux"),
    ],
)
def test_refused_by_name(values, said):
    with pytest.raises(ConfigError, match=said):
        family("t5").config.from_dict(values, strict=True)
