"""The less common ways to call a model give what the reference gives; impossible ones give a clear error."""

import json

import pytest
import torch
import transformers

from clearhead import hub
from clearhead.errors import InputError
from clearhead.models import family
from clearhead.nn import trace
from tests.tiny import shake

GPT2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20, "bos_token_id": 1,
        "eos_token_id": 1, "pad_token_id": 0}  # fmt: skip
BERT = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
        "max_position_embeddings": 20}  # fmt: skip


def pair(tmp_path, cls, **options):
    base = GPT2 if "GPT2" in cls.__name__ else BERT
    config = cls.config_class(**{**base, **options})
    config._attn_implementation = "eager"
    theirs = shake(cls(config))
    theirs.save_pretrained(tmp_path)
    return theirs, hub.load_model(tmp_path)


@pytest.fixture
def gpt2(tmp_path):
    return pair(tmp_path, transformers.GPT2LMHeadModel)


@pytest.fixture
def bert(tmp_path):
    return pair(tmp_path, transformers.BertForMaskedLM)


def check(models, **inputs):
    theirs, ours = models
    with torch.no_grad():
        want, got = theirs(**inputs), ours(**inputs)
    torch.testing.assert_close(got.logits, want.logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("which", ["gpt2", "bert"])
def test_vectors_instead_of_ids(which, request):
    check(request.getfixturevalue(which), inputs_embeds=torch.randn(2, 7, 16))


@pytest.mark.parametrize("which", ["gpt2", "bert"])
def test_positions_given(which, request):
    ids, positions = torch.randint(0, 40, (2, 7)), torch.randint(0, 20, (2, 7))
    check(request.getfixturevalue(which), input_ids=ids, position_ids=positions)


def test_segments_of_gpt2_come_from_the_token_table(gpt2):
    ids = torch.randint(0, 40, (2, 7))
    check(gpt2, input_ids=ids, token_type_ids=torch.randint(0, 40, (2, 7)))


@pytest.mark.parametrize("which", ["gpt2", "bert"])
def test_four_dimensional_float_mask(which, request):
    """It replaces the model's own mask, the causal order included, here as in the reference."""
    ids = torch.randint(0, 40, (2, 7))
    check(request.getfixturevalue(which), input_ids=ids, attention_mask=torch.randn(2, 1, 7, 7) * 3)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
def test_two_dimensional_masks_of_any_type(bert, dtype):
    theirs, ours = bert
    ids = torch.randint(1, 40, (2, 7))
    mask = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]])
    with torch.no_grad():
        want, got = theirs(ids, attention_mask=mask).logits, ours(ids, attention_mask=mask.to(dtype)).logits
    torch.testing.assert_close(got[mask.bool()], want[mask.bool()], rtol=1e-5, atol=1e-5)


def test_logits_only_where_asked(gpt2):
    _, ours = gpt2
    ids = torch.randint(0, 40, (2, 7))
    with torch.no_grad():
        whole = ours(ids).logits
        torch.testing.assert_close(ours(ids, logits_to_keep=2).logits, whole[:, -2:])
        torch.testing.assert_close(ours(ids, logits_to_keep=torch.tensor([1, 4])).logits, whole[:, [1, 4]])


@pytest.mark.parametrize(
    ("problem", "count", "labels"),
    [
        ("regression", 1, torch.randn(3)),
        ("regression", 4, torch.randn(3, 4)),
        ("multi_label_classification", 4, torch.randint(0, 2, (3, 4)).float()),
        (None, 4, torch.randint(0, 2, (3, 4)).float()),
        (None, 1, torch.randn(3)),
        ("single_label_classification", 4, torch.randint(0, 4, (3,))),
    ],
)
@pytest.mark.parametrize(
    "cls", [transformers.BertForSequenceClassification, transformers.GPT2ForSequenceClassification]
)
def test_kinds_of_classification(tmp_path, cls, problem, count, labels):
    theirs, ours = pair(tmp_path, cls, num_labels=count, problem_type=problem)
    ids = torch.randint(1, 40, (3, 7))
    torch.testing.assert_close(ours(ids, labels=labels).loss, theirs(ids, labels=labels).loss, rtol=1e-5, atol=1e-5)


def test_label_names_travel(tmp_path):
    _, ours = pair(
        tmp_path,
        transformers.BertForSequenceClassification,
        id2label={0: "bad", 1: "good"},
        label2id={"bad": 0, "good": 1},
    )
    hub.save_model(ours, tmp_path / "b")
    there = transformers.AutoConfig.from_pretrained(tmp_path / "b")
    assert there.id2label == {0: "bad", 1: "good"}
    assert ours.config.label2id == {"bad": 0, "good": 1}


def test_output_is_reached_by_name_key_and_place(gpt2):
    _, ours = gpt2
    out = ours(torch.tensor([[1, 2, 3]]), labels=torch.tensor([[1, 2, 3]]), use_cache=True)
    assert out[0] is out.loss
    assert out["logits"] is out.logits is out[1]
    assert list(out) == ["loss", "logits", "past_key_values"]
    assert "hidden_states" not in out
    with pytest.raises(KeyError, match="was not computed"):
        out["hidden_states"]


def test_second_names(tmp_path):
    _, ours = pair(tmp_path, transformers.BertForPreTraining)
    out = ours(torch.tensor([[1, 2, 3]]))
    assert out["prediction_logits"] is out.prediction_logits is out.logits


def test_published_option_names_and_keys_that_change_nothing_survive(tmp_path):
    _, ours = pair(tmp_path, transformers.GPT2LMHeadModel, use_cache=False, summary_type="first")
    assert (ours.config.n_embd, ours.config.n_layer) == (16, 2)
    with pytest.raises(AttributeError, match="n_embed"):
        _ = ours.config.n_embed
    hub.save_model(ours, tmp_path / "b")
    there = transformers.AutoConfig.from_pretrained(tmp_path / "b")
    assert there.use_cache is False
    assert there.summary_type == "first"


def test_generation_defaults_of_the_checkpoint(tmp_path, caplog):
    """generation_config.json is obeyed as the reference obeys it, unless the caller says otherwise; and kept."""
    theirs, ours = pair(tmp_path, transformers.GPT2LMHeadModel)
    theirs.generation_config.update(repetition_penalty=1.8, eos_token_id=[2, 9], max_new_tokens=6)
    theirs.generation_config.save_pretrained(tmp_path)
    ours = hub.load_model(tmp_path)
    for seed in range(5):
        ids = torch.randint(3, 40, (2, 5), generator=torch.Generator().manual_seed(seed))
        want, got = theirs.generate(ids, attention_mask=torch.ones_like(ids)), ours.generate(ids)
        assert got.tolist() == want.tolist()
        want = theirs.generate(ids, attention_mask=torch.ones_like(ids), repetition_penalty=1.0, max_new_tokens=4)
        assert ours.generate(ids, repetition_penalty=1.0, max_new_tokens=4).tolist() == want.tolist()
    hub.save_model(ours, tmp_path / "b")
    assert hub.load_model(tmp_path / "b").generation == ours.generation
    assert not caplog.records
    ours.generation["guidance_scale"] = 1.5
    ours.generate(IDS)
    assert "guidance_scale" in caplog.text


def test_older_files_say_how_to_generate_in_their_config(tmp_path):
    """As bart-large-cnn and CTRL were first published. A generation_config.json beside it has the only word."""
    theirs, _ = pair(tmp_path, transformers.GPT2LMHeadModel, eos_token_id=None)
    raw = json.loads((tmp_path / "config.json").read_text())
    told = {"repetition_penalty": 1.8, "no_repeat_ngram_size": 2, "num_beams": 3, "length_penalty": 2.0}
    (tmp_path / "config.json").write_text(json.dumps(raw | told))
    assert "num_beams" not in hub.load_model(tmp_path).generation
    (tmp_path / "generation_config.json").unlink()
    theirs, ours = type(theirs).from_pretrained(tmp_path), hub.load_model(tmp_path)
    for seed in range(3):
        ids = torch.randint(3, 40, (2, 5), generator=torch.Generator().manual_seed(seed))
        want = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6)
        assert ours.generate(ids, max_new_tokens=6).tolist() == want.tolist()
    hub.save_model(ours, tmp_path / "b")
    assert told.items() <= hub.load_model(tmp_path / "b").generation.items()
    there, ids = type(theirs).from_pretrained(tmp_path / "b").generation_config, (theirs.config, ours.config)
    assert {(there.bos_token_id, there.pad_token_id)} == {(c.bos_token_id, c.pad_token_id) for c in ids}


@pytest.mark.parametrize(
    ("cls", "rates"),
    [
        (transformers.BertForSequenceClassification, {"hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.22,
                                                      "classifier_dropout": 0.33}),
        (transformers.BertForTokenClassification, {"hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.22}),
        (transformers.BertForMaskedLM, {"hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.22}),
        (transformers.MPNetForSequenceClassification,
         {"hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.22}),
        (transformers.MPNetForTokenClassification, {"hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.22}),
        (transformers.MPNetForQuestionAnswering, {"hidden_dropout_prob": 0.11, "attention_probs_dropout_prob": 0.22}),
        (transformers.GPT2LMHeadModel, {"resid_pdrop": 0.11, "embd_pdrop": 0.22, "attn_pdrop": 0.33}),
        (transformers.GPT2ForTokenClassification, {"resid_pdrop": 0.11, "embd_pdrop": 0.22, "attn_pdrop": 0.33}),
    ],
)  # fmt: skip
def test_dropout_where_the_reference_has_it(tmp_path, monkeypatch, cls, rates):
    """In training, the same rates fall on tensors of the same shapes, in the same order."""
    theirs, ours = pair(tmp_path, cls, **rates)
    calls = []

    def note(x, p=0.5, training=True, inplace=False):
        if training and p > 0:
            calls.append((round(p, 2), tuple(x.shape)))
        return x

    monkeypatch.setattr(torch.nn.functional, "dropout", note)
    found = []
    for model in (theirs.train(), ours.train()):
        calls.clear()
        if model is ours:
            with trace(ours, "layers.*.attention.weights"):  # the explicit path, which drops weights by this function
                model(torch.ones(2, 5, dtype=torch.long))
        else:
            model(torch.ones(2, 5, dtype=torch.long))
        found.append(list(calls))
    assert found[0]
    assert found[1] == found[0]


# --- what must be refused ----------------------------------------------------------------------------------------

IDS = torch.tensor([[3, 4, 5]])


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"input_ids": torch.tensor([[3, 40]])}, "knows ids 0 to 39"),
        ({"input_ids": torch.tensor([[3, -1]])}, "holds -1"),
        ({"input_ids": torch.tensor([[0.5]])}, "whole numbers"),
        ({"input_ids": torch.zeros(1, 21, dtype=torch.long)}, "position 21, but this model has 20"),
        ({"input_ids": torch.zeros(1, 0, dtype=torch.long)}, "empty"),
        ({"input_ids": torch.tensor([3, 4])}, r"\(batch, time\)"),
        ({"input_ids": [[3, 4]]}, "must be a tensor"),
        ({}, "either input_ids or inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": torch.zeros(1, 3, 16)}, "not both"),
        ({"input_ids": IDS, "attention_mask": torch.ones(1, 4)}, r"\(1, 4\)"),
        ({"input_ids": IDS, "attention_mask": torch.ones(3)}, "attention_mask"),
        ({"input_ids": IDS, "attention_mask": torch.full((1, 3), -1e9)}, "1 .seen. and 0 .hidden."),
        ({"input_ids": IDS, "attention_mask": torch.ones(1, 1, 3, 3, dtype=torch.long)}, "bool"),
        ({"input_ids": IDS, "attention_mask": [[1, 1, 1]]}, "must be a tensor"),
        ({"input_ids": IDS, "position_ids": torch.tensor([[0, 1, 20]])}, "position 21"),
        ({"input_ids": IDS, "position_ids": torch.tensor([[0, 1, -2]])}, "negative"),
        ({"input_ids": IDS, "position_ids": torch.tensor([[0, 1]])}, "position_ids"),
        ({"input_ids": IDS, "labels": torch.tensor([[1, 2]])}, "labels"),
        ({"input_ids": IDS, "labels": torch.tensor([[1, 2, 40]])}, "labels hold 40"),
        ({"input_ids": IDS, "labels": torch.tensor([[1.0, 2.0, 3.0]])}, "whole numbers"),
        ({"input_ids": IDS, "labels": [[1, 2, 3]]}, "labels must be a tensor"),
        ({"input_ids": IDS, "position_ids": torch.tensor([[0.0, 1.0, 2.0]])}, "whole numbers"),
        ({"input_ids": IDS, "position_ids": [[0, 1, 2]]}, "must be a tensor"),
        ({"input_ids": IDS, "token_type_ids": [[0, 0, 0]]}, "must be a tensor"),
        ({"inputs_embeds": torch.zeros(1, 3, 15)}, "vectors of 16"),
        ({"inputs_embeds": torch.zeros(1, 3, 16, dtype=torch.long)}, "floating-point"),
        ({"input_ids": IDS, "encoder_hidden_states": torch.zeros(1, 2, 16)}, "cross-attention"),
    ],
)
@pytest.mark.parametrize("which", ["gpt2", "bert"])
def test_impossible_inputs(which, inputs, says, request):
    _, ours = request.getfixturevalue(which)
    with pytest.raises(InputError, match=says):
        ours(**inputs)


@pytest.mark.parametrize("wrong", [[[4, 5]], "text", torch.tensor([4, 5]), torch.zeros(2, 0, dtype=torch.long)])
@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("bart", "sequence-classification"),
        ("mbart", "question-answering"),
        ("t5", "question-answering"),
        ("big_bird", "question-answering"),
        ("bert", "multiple-choice"),
    ],
)
def test_heads_that_look_at_the_ids_first_say_what_is_wrong_with_them(name, task, wrong):
    raw = {"t5": {"d_model": 8, "num_layers": 1}, "bart": {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1}}
    raw["mbart"] = raw["bart"]
    bert = {"hidden_size": 12, "num_hidden_layers": 1, "sep_token_id": 2, "intermediate_size": 8}
    fam = family(name)
    model = fam.make(fam.config.from_dict({"vocab_size": 12, **raw.get(name, bert)}), task)
    with pytest.raises(InputError, match=r"input_ids|empty"):
        model(input_ids=wrong)


def test_segments_outside_the_table(bert):
    with pytest.raises(InputError, match="token_type_ids holds 2"):
        bert[1](IDS, token_type_ids=torch.tensor([[0, 1, 2]]))


def test_an_encoder_cannot_continue_from_a_cache(bert, gpt2):
    cache = gpt2[1](IDS, use_cache=True).past_key_values
    with pytest.raises(InputError, match="both directions"):
        bert[1](IDS, past_key_values=cache)


def test_cache_past_the_last_position(gpt2):
    ours = gpt2[1]
    cache = ours(torch.ones(1, 20, dtype=torch.long), use_cache=True).past_key_values
    with pytest.raises(InputError, match="position 21"):
        ours(torch.ones(1, 1, dtype=torch.long), past_key_values=cache)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"top_k": 0}, "top_k"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 1.5}, "top_p"),
        ({"temperature": 0.0}, "greedy"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": 2, "min_new_tokens": 3}, "min_new_tokens"),
        ({"num_beam": 3}, "Did you mean num_beams"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences"),
        ({"num_return_sequences": 3}, "Greedy decoding has one answer"),
        ({"do_sample": False, "top_k": 5}, "top_k"),
        ({"max_length": 3}, "max_length"),
        ({"early_stopping": "maybe"}, "early_stopping"),
        ({"seed": "a"}, "seed"),
        ({"seed": 2**70}, "seed"),
        ({"eos_token_id": "a"}, "eos_token_id"),
        ({"top_k": 3, "temperature": 1e-40}, "temperature"),
    ],
)
def test_impossible_generation_options(gpt2, options, says):
    with pytest.raises(InputError, match=says):
        gpt2[1].generate(IDS, **options)


def test_generation_stops_at_the_last_position(gpt2, caplog):
    ours = gpt2[1]
    out = ours.generate(torch.ones(1, 18, dtype=torch.long) * 3, max_new_tokens=10, eos_token_id=[])
    assert out.shape == (1, 21)
    assert "20 positions" in caplog.text
    with pytest.raises(InputError, match="no room to write"):
        ours.generate(torch.ones(1, 21, dtype=torch.long), max_new_tokens=1)


def test_generation_needs_a_model_that_writes(bert):
    with pytest.raises(InputError, match="cannot write text"):
        bert[1].generate(IDS)


def test_sampling_is_reproducible_and_follows_the_chances(gpt2):
    ours = gpt2[1]
    a = ours.generate(IDS, max_new_tokens=8, top_k=5, seed=3)
    assert torch.equal(a, ours.generate(IDS, max_new_tokens=8, top_k=5, seed=3))
    with torch.no_grad():
        logits = ours(IDS).logits[0, -1]
    drawn = ours.generate(
        IDS, max_new_tokens=1, do_sample=True, num_return_sequences=8000, seed=0, top_k=5, temperature=1.7
    )[:, -1]
    kept = logits.topk(5)
    want = (kept.values / 1.7).softmax(-1)
    found = torch.stack([(drawn == t).float().mean() for t in kept.indices])
    assert found.sum() == pytest.approx(1)
    assert (found - want).abs().max() < 0.03  # five standard errors of a share over 8,000 draws
    # top_p keeps the smallest set that reaches p
    p = logits.softmax(-1).sort(descending=True)
    n = int((p.values.cumsum(0) < 0.6).sum()) + 1
    nucleus = ours.generate(IDS, max_new_tokens=1, num_return_sequences=3000, seed=0, top_p=0.6)[:, -1]
    assert set(nucleus.tolist()) == set(p.indices[:n].tolist())
