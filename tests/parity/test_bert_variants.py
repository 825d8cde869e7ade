"""What RoBERTa, XLM-RoBERTa, MPNet, DistilBERT, ELECTRA and ALBERT have beyond what the harness draws at random."""

import copy
import importlib
import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from clearhead import hub
from clearhead.errors import CheckpointError, ConfigError, InputError
from clearhead.hub.describe import describe
from clearhead.models import family, presets
from clearhead.nn import sinusoidal, trace
from tests.tiny import shake

SMALL = {
    "vocab_size": 40, "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 3, "intermediate_size": 20,
    "max_position_embeddings": 24,
}  # fmt: skip
NAMES = {
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "xlm-roberta-xl": "XLMRobertaXL",
    "mpnet": "MPNet",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "albert": "Albert",
}
COUNTING = ("roberta", "xlm-roberta", "xlm-roberta-xl")  # positions start after the padding id


def pair(folder, name, kind="ForMaskedLM", **options):
    cls = getattr(transformers, NAMES[name] + kind)
    small = {"hidden_dim" if name == "distilbert" and k == "intermediate_size" else k: v for k, v in SMALL.items()}
    config = cls.config_class(**{**small, **options})
    config._attn_implementation = "eager"
    theirs = shake(cls(config))
    theirs.save_pretrained(folder)
    return theirs, hub.load_model(folder)


def agree(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * max(1.0, b.abs().max().item()))


def edit(folder, **changes):
    """Change config.json, as an older library would have written it."""
    path = folder / "config.json"
    raw = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in raw.items() if value is not ...}))


# --- sizes -------------------------------------------------------------------------------------------------------

SIZES = sorted(name for name, fam in presets().items() if fam.name in NAMES)


@pytest.mark.parametrize("name", SIZES)
def test_presets_have_the_parameters_of_the_published_models(name):
    """For every task, against the reference's own count on the meta device."""
    fam = presets()[name]
    config = fam.preset(name)
    for task, architecture in fam.architectures.items():
        cls = getattr(transformers, architecture)
        published = {key: value for key, value in config.to_dict().items() if key not in ("id2label", "label2id")}
        with torch.device("meta"):
            theirs = cls(cls.config_class(**published))
        theirs.tie_weights()
        ours = describe(name, fam, config, task)
        assert ours.parameters == sum(p.numel() for p in theirs.parameters()), task
        assert ours.parameters == sum(part.parameters for part in ours.parts)


@pytest.mark.parametrize(
    ("name", "task", "published"),
    [  # as model cards and papers count them
        ("roberta-base", "features", 124_645_632),
        ("roberta-large", "features", 355_359_744),
        ("xlm-roberta-base", "features", 278_043_648),
        ("xlm-roberta-large", "features", 559_890_432),
        ("mpnet-base", "features", 109_486_464),
        ("distilbert-base-uncased", "features", 66_362_880),
        ("electra-small-discriminator", "features", 13_483_008),
        ("electra-base-discriminator", "features", 108_891_648),
        ("electra-base-generator", "features", 33_511_168),
        ("albert-base-v2", "features", 11_683_584),
        ("albert-xxlarge-v2", "features", 222_595_584),
    ],
)
def test_totals(name, task, published):
    fam = presets()[name]
    assert describe(name, fam, fam.preset(name), task).parameters == published


def test_context_is_what_a_text_may_have():
    fam = family("roberta")
    assert describe("roberta-base", fam, fam.preset("roberta-base")).context == 512


# --- positions that count from the padding id --------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_vectors_instead_of_ids(name, tmp_path):
    theirs, ours = pair(tmp_path, name, **({"embedding_size": 7} if name in ("electra", "albert") else {}))
    vectors = torch.randn(2, 6, ours.stack.embed.tokens.embedding_dim)
    with torch.no_grad():
        agree(ours(inputs_embeds=vectors).logits, theirs(inputs_embeds=vectors).logits)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [True, False])
def test_padding_inside_and_positions(name, given, tmp_path):
    theirs, ours = pair(tmp_path, name)
    ids = torch.randint(3, 40, (3, 9))
    ids[0, 2:4] = ids[1, 0] = ids[2, -3:] = theirs.config.pad_token_id
    more = {"position_ids": torch.randint(0, 24, (3, 9))} if given else {}
    with torch.no_grad():
        agree(ours(ids, **more).logits, theirs(ids, **more).logits)


@pytest.mark.parametrize("name", COUNTING)
def test_the_longest_text(name, tmp_path):
    theirs, ours = pair(tmp_path, name, pad_token_id=4)
    ids = torch.randint(5, 40, (1, 19))  # 24 rows, of which 0 to 4 are no token's
    with torch.no_grad():
        agree(ours(ids).logits, theirs(ids).logits)
    with pytest.raises(InputError, match="position 25, but this model has 24"):
        ours(torch.randint(5, 40, (1, 20)))


@pytest.mark.parametrize("name", [*COUNTING, "electra"])
@pytest.mark.parametrize("pad", [None, "left", "right"])
def test_written_text_follows_from_the_forward_pass(name, pad, tmp_path):
    """Token by token from the reference's own forward pass, without a cache and one row at a time."""
    theirs, ours = pair(tmp_path, name, "ForCausalLM", is_decoder=True, pad_token_id=2)
    ids, mask = torch.randint(3, 40, (3, 6)), torch.ones(3, 6, dtype=torch.long)
    if pad is not None:
        mask[1, :2] = mask[2, :3] = 0
        mask = mask if pad == "left" else mask.flip(1)
    got = ours.generate(ids.masked_fill(mask == 0, 2), attention_mask=mask, max_new_tokens=8, eos_token_id=[])
    for row in range(3):
        text = ids[row][mask[row].bool()][None]
        first = ours.stack.embed.first_position
        for _ in range(8):
            with torch.no_grad():  # by count, since a written padding token is a token like any other
                positions = torch.arange(first, first + text.shape[1])[None]
                text = torch.cat([text, theirs(text, position_ids=positions).logits[:, -1:].argmax(-1)], 1)
        assert got[row, 6:].tolist() == text[0, -8:].tolist()


def test_writing_stops_where_positions_end(tmp_path, caplog):
    _, ours = pair(tmp_path, "roberta", "ForCausalLM", is_decoder=True, pad_token_id=3)
    out = ours.generate(torch.full((1, 18), 5), max_new_tokens=9, eos_token_id=[])
    assert out.shape == (1, 21)  # 20 read, one more written
    assert "20 positions" in caplog.text


# --- older files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["relative_key", "relative_key_query"])
@pytest.mark.parametrize("name", ["roberta", "xlm-roberta", "xlm-roberta-xl", "electra", "albert"])
def test_relative_positions_of_older_versions(name, kind, tmp_path, monkeypatch):
    """transformers no longer has them; here they are written into its attention."""
    module = importlib.import_module(f"transformers.models.{name.replace('-', '_')}.modeling_{name.replace('-', '_')}")
    theirs, _ = pair(tmp_path, name)
    with torch.no_grad():  # absolute positions are left out by making them zero
        dict(theirs.named_modules())[f"{theirs.base_model_prefix}.embeddings.position_embeddings"].weight.zero_()
    layers = {
        n: m for n, m in theirs.named_modules() if type(m).__name__.endswith(("SelfAttention", "AlbertAttention"))
    }
    tables = {n: torch.randn(2 * 24 - 1, 4) for n in layers}
    of = {id(m): tables[n] for n, m in layers.items()}

    def attention(module, query, key, value, mask, scaling=None, dropout=0.0, **_):
        scores = query @ key.transpose(-1, -2)
        for i in range(query.shape[2]):
            for j in range(key.shape[2]):
                r = of[id(module)][i - j + 23]
                scores[:, :, i, j] += query[:, :, i] @ r
                if kind == "relative_key_query":
                    scores[:, :, i, j] += key[:, :, j] @ r
        weights = (scores * scaling + (0 if mask is None else mask)).softmax(-1)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    monkeypatch.setattr(module, "eager_attention_forward", attention)
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(
        tensors | {f"{n}.distance_embedding.weight": t for n, t in tables.items()}, tmp_path / "model.safetensors"
    )
    edit(tmp_path, position_embedding_type=kind)
    ours = hub.load_model(tmp_path)
    ids = torch.randint(3, 40, (2, 9))
    with torch.no_grad():
        agree(ours(ids).logits, theirs(ids).logits)


OLD_CONFIGS = {
    "roberta-base": """{"architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
        "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
        "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
        "model_type": "roberta", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
        "type_vocab_size": 1, "vocab_size": 50265}""",
    "xlm-roberta-base": """{"architectures": ["XLMRobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1,
        "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
        "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
        "model_type": "xlm-roberta", "num_attention_heads": 12, "num_hidden_layers": 12, "output_past": true,
        "pad_token_id": 1, "position_embedding_type": "absolute", "transformers_version": "4.17.0.dev0",
        "type_vocab_size": 1, "use_cache": true, "vocab_size": 250002}""",
    "mpnet-base": """{"architectures": ["MPNetForMaskedLM"], "attention_probs_dropout_prob": 0.1, "pad_token_id": 1,
        "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
        "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
        "relative_attention_num_buckets": 32, "model_type": "mpnet", "num_attention_heads": 12,
        "num_hidden_layers": 12, "vocab_size": 30527}""",
    "distilbert-base-uncased": """{"activation": "gelu", "architectures": ["DistilBertForMaskedLM"],
        "attention_dropout": 0.1, "dim": 768, "dropout": 0.1, "hidden_dim": 3072, "initializer_range": 0.02,
        "max_position_embeddings": 512, "model_type": "distilbert", "n_heads": 12, "n_layers": 6, "pad_token_id": 0,
        "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": false, "tie_weights_": true,
        "is_decoder": false, "pruned_heads": {}, "torchscript": false, "transformers_version": "4.10.0.dev0",
        "vocab_size": 30522}""",
    "electra-small-generator": """{"architectures": ["ElectraForMaskedLM"], "attention_probs_dropout_prob": 0.1,
        "embedding_size": 128, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 256,
        "initializer_range": 0.02, "intermediate_size": 1024, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "model_type": "electra", "num_attention_heads": 4, "num_hidden_layers": 12, "pad_token_id": 0,
        "position_embedding_type": "absolute", "summary_activation": "gelu", "summary_last_dropout": 0.1,
        "summary_type": "first", "summary_use_proj": true, "type_vocab_size": 2, "vocab_size": 30522}""",
    "albert-base-v2": """{"architectures": ["AlbertForMaskedLM"], "attention_probs_dropout_prob": 0, "bos_token_id": 2,
        "classifier_dropout_prob": 0.1, "down_scale_factor": 1, "embedding_size": 128, "eos_token_id": 3, "gap_size": 0,
        "hidden_act": "gelu_new", "hidden_dropout_prob": 0, "hidden_size": 768, "initializer_range": 0.02,
        "inner_group_num": 1, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "model_type": "albert", "net_structure_type": 0, "num_attention_heads": 12, "num_hidden_groups": 1,
        "num_hidden_layers": 12, "num_memory_blocks": 0, "pad_token_id": 0, "type_vocab_size": 2,
        "vocab_size": 30000}""",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("bert", {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}),  # cross-encoders
        ("xlm-roberta", {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}),
        ("roberta", {"language": "english", "name": "Roberta"}),
        ("electra", {"generator_size": "0.25", "language": "danish", "name": "Electra"}),
        ("albert", {"layers_to_keep": []}),
    ],
)
def test_notes_that_published_files_carry(name, notes):
    fam = family(name)
    assert fam.config.from_dict(notes) == fam.config()
    kept = fam.config.from_dict(notes).to_dict()
    assert name == "albert" or notes.items() <= kept.items()


@pytest.mark.parametrize(
    ("name", "options"),
    [("albert", {"layers_to_keep": [1]}), *((n, {"pad_token_id": 10**6}) for n in ("distilbert", "deberta", "xlm"))],
)
def test_what_cannot_be_is_refused_by_name(name, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        family(name).config.from_dict(options, strict=True)


@pytest.mark.parametrize("name", OLD_CONFIGS)
def test_published_config_files_are_the_presets(name):
    raw = json.loads(OLD_CONFIGS[name])
    fam = family(raw["model_type"])
    assert fam.config.from_dict(raw) == fam.preset(name)
    assert fam.task_of(raw["architectures"][0]) == "masked-lm"


@pytest.mark.parametrize("name", NAMES)
def test_files_of_older_versions(name, tmp_path):
    """They keep counters, the tied matrix a second time, TensorFlow's names of norms, and parts of other tasks."""
    theirs, ours = pair(tmp_path, name)
    body = theirs.base_model_prefix
    tensors = load_file(tmp_path / "model.safetensors")
    tensors[f"{body}.embeddings.position_ids"] = torch.arange(24)[None]
    tied = {"distilbert": "vocab_projector", "electra": "generator_lm_head", "albert": "predictions.decoder"}
    tensors[f"{tied.get(name, 'lm_head.decoder')}.weight"] = theirs.get_input_embeddings().weight.detach().clone()
    if name in (*COUNTING, "mpnet"):
        tensors[f"{body}.pooler.dense.weight"], tensors[f"{body}.pooler.dense.bias"] = (
            torch.ones(12, 12),
            torch.ones(12),
        )
    if name == "albert":
        tensors |= {"albert.pooler.weight": torch.ones(12, 12), "albert.pooler.bias": torch.ones(12)}
        tensors |= {
            "sop_classifier.classifier.weight": torch.ones(2, 12),
            "sop_classifier.classifier.bias": torch.ones(2),
        }
    if name != "distilbert":
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        for new, was in old.items():
            tensors = {key.replace(new, was): value for key, value in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    again = hub.load_model(tmp_path)
    ids = torch.randint(3, 40, (2, 9))
    with torch.no_grad():
        assert torch.equal(again(ids).logits, ours(ids).logits)
    assert again.head.output.weight is again.stack.embed.tokens.weight
    if name in (*COUNTING, "mpnet", "albert"):
        pooled = hub.load_model(tmp_path, task="features")(ids).pooler_output
        assert pooled.shape == (2, 12)


# --- refused by name ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("roberta", {"pad_token_id": None}, "no pad_token_id"),
        ("xlm-roberta", {"pad_token_id": 30, "max_position_embeddings": 31}, "no token would have one"),
        ("roberta", {"add_cross_attention": True}, "only a decoder"),
        ("mpnet", {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets = 16"),
        ("mpnet", {"relative_attention_max_distance": 64}, "relative_attention_max_distance"),
        ("mpnet", {"type_vocab_size": 2}, "type_vocab_size = 2"),
        ("mpnet", {"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        ("mpnet", {"classifier_dropout": 0.1}, r"classifier_dropout = 0\.1"),
        ("mpnet", {"is_decoder": True}, "is_decoder = True"),
        ("mpnet", {"add_cross_attention": True}, "only a decoder"),
        ("mpnet", {"max_position_embeddings": 2}, "no token would have one"),
        ("distilbert", {"tie_weights_": False}, "tie_weights_"),
        ("distilbert", {"is_decoder": True}, "is_decoder"),
        ("distilbert", {"type_vocab_size": 2}, "type_vocab_size"),
        ("distilbert", {"qa_dropout": 2.0}, "qa_dropout"),
        ("distilbert", {"dim": 13}, "dim is 13"),
        ("electra", {"summary_type": "attn"}, "summary_type"),
        ("electra", {"summary_proj_to_labels": True}, "summary_proj_to_labels"),
        ("electra", {"embedding_size": 0}, "embedding_size"),
        ("albert", {"num_memory_blocks": 1}, "num_memory_blocks"),
        ("albert", {"is_decoder": True}, "encoder only"),
        ("albert", {"num_hidden_groups": 4}, "only 3 layers"),
        ("albert", {"inner_group_num": 0}, "inner_group_num"),
        ("albert", {"classifier_dropout_prob": -0.1}, "classifier_dropout_prob"),
    ],
)
def test_refused(name, changes, says, tmp_path):
    pair(tmp_path, name)
    edit(tmp_path, **changes)
    with pytest.raises(ConfigError, match=says):
        hub.load_model(tmp_path, strict=True)


# --- DistilBERT --------------------------------------------------------------------------------------------------


def test_distilberts_sinusoidal_table_is_the_references():
    fam = family("distilbert")
    values = {**SMALL, "sinusoidal_pos_embds": True}
    ours = fam.make(fam.config(**values)).stack.embed.positions.weight
    theirs = transformers.DistilBertModel(transformers.DistilBertConfig(**values)).embeddings.position_embeddings.weight
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours, sinusoidal(24, 12))
    learned = fam.make(fam.config(**SMALL)).stack.embed.positions.weight
    assert learned.std().item() == pytest.approx(0.02, rel=0.3)


# --- MPNet -------------------------------------------------------------------------------------------------------


def test_mpnet_distances_up_to_the_last_bucket_and_beyond(tmp_path):
    theirs, ours = pair(tmp_path, "mpnet", max_position_embeddings=202)
    ids = torch.randint(3, 40, (2, 200))
    ids[1, 150:] = 1
    with torch.no_grad():
        agree(ours(ids).logits, theirs(ids).logits)
    used = ours.stack.position_bias.bucket(torch.arange(-199, 200)).unique()
    assert used.tolist() == [n for n in range(32) if n != 16]  # all, but for the one of "0 steps to the right"


@pytest.mark.parametrize("name", ["mpnet", "bert", "roberta", "electra", "albert", "big_bird"])
def test_no_segments(name, tmp_path):
    fam = family(name)
    made = fam.make(fam.config(**{**SMALL, "type_vocab_size": 0}))
    hub.save_model(made, tmp_path)
    ours, ids = hub.load_model(tmp_path), torch.randint(3, 40, (2, 6))
    with torch.no_grad():
        assert torch.equal(ours(ids).logits, made(ids).logits)
    with pytest.raises(InputError, match="no segment embeddings"):
        ours(torch.full((1, 3), 5), token_type_ids=torch.ones(1, 3, dtype=torch.long))


# --- ELECTRA -----------------------------------------------------------------------------------------------------


def test_replaced_tokens_without_a_mask_and_with_labels_left_out(tmp_path):
    theirs, ours = pair(tmp_path, "electra", "ForPreTraining")
    ids, labels = torch.randint(3, 40, (2, 9)), torch.randint(0, 2, (2, 9))
    agree(ours(ids, labels=labels).loss, theirs(ids, labels=labels).loss)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 5:] = 0
    want = theirs(ids, attention_mask=mask, labels=labels).loss
    ignored = labels.masked_fill(mask == 0, -100)
    agree(ours(ids, attention_mask=mask, labels=ignored).loss, want)
    agree(ours(ids, attention_mask=mask, labels=labels).loss, want)


# --- ALBERT: one set of weights, many layers ---------------------------------------------------------------------


@pytest.fixture
def albert(tmp_path):
    return pair(tmp_path, "albert", num_hidden_layers=5, num_hidden_groups=2, inner_group_num=2)


def test_layers_of_a_group_share_and_others_do_not(albert):
    theirs, ours = albert
    queries = [layer.attention.query.weight for layer in ours.stack.layers]
    assert len(queries) == 10
    # five layers in two groups: three of the first, two of the second; each runs two layers of its own weights
    places = [(0, 0), (0, 1)] * 3 + [(1, 0), (1, 1)] * 2
    for query, (group, inner) in zip(queries, places, strict=True):
        stored = theirs.albert.encoder.albert_layer_groups[group].albert_layers[inner].attention.query.weight
        assert torch.equal(query, stored)
        assert query is queries[places.index((group, inner))]
    assert len({id(q) for q in queries}) == 4
    assert ours.num_parameters() == sum(p.numel() for p in theirs.parameters())


def test_each_layer_keeps_its_own_name(albert):
    theirs, ours = albert
    ids = torch.randint(3, 40, (2, 6))
    with torch.no_grad(), trace(ours, "layers.*.attention.weights") as seen:
        ours(ids)
    with torch.no_grad():
        want = theirs(ids, output_attentions=True).attentions
        assert len(seen) == len(want) == 10
        for n, weights in enumerate(want):
            agree(seen[f"layers.{n}.attention.weights"], weights)
        plain = ours(ids).logits
        with trace(ours, replace={"layers.2.attention.output": torch.zeros_like}):
            third = ours(ids).logits
        with trace(ours, replace={"layers.0.attention.output": torch.zeros_like}):
            first = ours(ids).logits
    assert not torch.allclose(plain, third)
    assert not torch.allclose(first, third)


def test_shared_weights_are_stored_once_and_stay_shared(albert, tmp_path):
    _, ours = albert
    hub.save_model(ours, tmp_path / "saved")
    stored = load_file(tmp_path / "saved" / "model.safetensors")
    assert sum(t.numel() for t in stored.values()) == ours.num_parameters()
    ids = torch.randint(3, 40, (2, 6))
    for model in (hub.load_model(tmp_path / "saved", dtype="float64"), copy.deepcopy(ours), ours.double()):
        assert model.num_parameters() == sum(t.numel() for t in stored.values())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        layers = model.stack.layers
        assert layers[0].feedforward.up.weight is layers[4].feedforward.up.weight
        assert not torch.equal(layers[0].feedforward.up.weight.float(), stored[
            "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"])  # fmt: skip


def test_a_shared_tensor_that_is_missing_is_named(albert, tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["albert.encoder.albert_layer_groups.1.albert_layers.0.ffn.weight"]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"albert_layer_groups\.1\.albert_layers\.0\.ffn\.weight"):
        hub.load_model(tmp_path)


def test_a_fresh_albert_shares_too_and_counts_each_tensor_once():
    fam = family("albert")
    config = fam.config(**SMALL)
    model = fam.make(config)
    assert len({id(layer.attention.key.weight) for layer in model.stack.layers}) == 1
    described = describe("small", fam, config)
    rows = {part.name: part for part in described.parts}
    assert rows["layers.*.attention.query.weight"].count == 3
    assert rows["layers.*.attention.query.weight"].parameters == 12 * 12
    # sharing saves memory, not work: three layers' worth of multiplications
    alone = describe("one layer", fam, fam.config(**{**SMALL, "num_hidden_layers": 1}))
    per_layer = 2 * (4 * 12 * 12 + 2 * 12 * 20) + 4 * 12 * 24
    assert described.flops_per_token - alone.flops_per_token == 2 * per_layer
    assert described.parameters == alone.parameters
