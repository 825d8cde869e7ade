"""What can be asked for: what contradicts itself, what a file says, and who draws from which seed."""

from __future__ import annotations

import copy
import logging
import re

import pytest
import torch

from clearhead.errors import InputError
from clearhead.generate import generate, stream
from clearhead.generate.options import Options
from tests.generate.models import VOCAB, ids, model


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_new_tokens": 2, "min_new_tokens": 3}, r"min_new_tokens \(3\) is above max_new_tokens \(2\)"),
        ({"max_length": 4, "min_length": 5}, r"min_length \(5\) is above max_length"),
        ({"early_stopping": "soon"}, "early_stopping"),
        ({"num_beams": 2, "num_return_sequences": 3}, "ends with num_beams hypotheses"),
        ({"num_beams": 4, "num_beam_groups": 3}, "4 beams cannot be split into 3"),
        ({"num_beams": 4, "num_beam_groups": 2, "top_k": 3}, "Groups of beams cannot sample"),
        ({"num_beams": 4, "num_beam_groups": 2, "force_words_ids": [[1]]}, "Groups of beams cannot sample or force"),
        ({"force_words_ids": [[1]]}, "num_beams of 2 or more"),
        ({"force_words_ids": [[1]], "num_beams": 2, "seed": 1}, "it cannot sample"),
        ({"num_return_sequences": 2}, "Greedy decoding has one answer"),
        ({"num_return_sequences": 2, "penalty_alpha": 0.5, "top_k": 3}, "one answer"),
        ({"penalty_alpha": 0.5}, "top_k of 2 or more"),
        ({"penalty_alpha": 0.5, "top_k": 1}, "top_k of 2 or more"),
        ({"penalty_alpha": 0.5, "top_k": 3, "top_p": 0.5}, "goes without top_p"),
        ({"penalty_alpha": 0.5, "top_k": 3, "num_beams": 2}, "goes without num_beams"),
        ({"penalty_alpha": 0.5, "top_k": 3, "do_sample": True}, "goes without do_sample"),
        ({"penalty_alpha": 0.5, "top_k": 3, "seed": 3}, "goes without seed"),
        ({"do_sample": False, "min_p": 0.5}, "min_p only matters when sampling"),
        ({"prompt_lookup_num_tokens": 3, "num_beams": 2}, "follows one text"),
        ({"assistant_model": 3, "penalty_alpha": 0.5, "top_k": 3}, "follows one text"),
        ({"prompt_lookup_num_tokens": 3, "assistant_model": 3}, "and not both"),
        ({"cuda_graphs": True, "num_beams": 2}, "cuda_graphs"),
        ({"cuda_graphs": True, "penalty_alpha": 0.5, "top_k": 3}, "cuda_graphs"),
        ({"cuda_graphs": True, "prompt_lookup_num_tokens": 3}, "cuda_graphs"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0.0}, "above 0 and at most 1"),
        ({"top_k": True}, "top_k"),
        ({"top_k": -1}, "top_k"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"frequency_penalty": "a"}, "frequency_penalty"),
        ({"length_penalty": float("inf")}, "length_penalty"),
        ({"bad_words_ids": [3]}, "bad_words_ids"),
        ({"bad_words_ids": [[]]}, "bad_words_ids"),
        ({"suppress_tokens": 3}, "suppress_tokens"),
        ({"stop_strings": ["a", ""]}, "none of them empty"),
        ({"exponential_decay_length_penalty": (3,)}, "exponential_decay"),
        ({"seed": [1, "a"]}, "seed"),
        ({"seed": 2**62}, "seed"),
        ({"eos_token_id": [1, "a"]}, "eos_token_id"),
        ({"num_assistant_tokens": 0}, "num_assistant_tokens"),
    ],
)
def test_what_cannot_be(options, says):
    with pytest.raises(InputError, match=says):
        Options.from_keywords(options)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("num_beam", "num_beams"),
        ("max_new_token", "max_new_tokens"),
        ("temprature", "temperature"),
        ("stop_string", "stop_strings"),
    ],
)
def test_an_unknown_word_suggests_the_near_one(wrong, near):
    with pytest.raises(InputError, match=f"no option '{wrong}'.*Did you mean .*{near}"):
        Options.from_keywords({wrong: 3})


def test_the_papers_words():
    asked = Options.from_keywords({"beam_size": 4, "top_beams": 2})
    assert (asked.num_beams, asked.num_return_sequences) == (4, 2)


def test_a_file_fills_in_what_was_not_asked():
    stored = {"num_beams": 4, "max_length": 9, "repetition_penalty": 1.3, "bos_token_id": 1, "use_cache": True}
    assert Options.from_keywords({}, stored) == Options(num_beams=4, max_length=9, repetition_penalty=1.3)
    assert Options.from_keywords({"num_beams": 1}, stored).num_beams == 1
    assert Options.from_keywords({"num_beams": None}, stored).num_beams == 4
    # a length that is asked for replaces every stored one, and what it contradicts
    assert Options.from_keywords({"max_new_tokens": 5}, stored).max_length is None
    assert Options.from_keywords({"max_new_tokens": 5}, {"min_new_tokens": 6}).min_new_tokens == 0
    assert Options.from_keywords({"max_length": 5}, {"min_length": 6, "max_length": 9}).min_length == 0
    assert Options.from_keywords({"max_length": 7}, {"min_length": 6, "max_length": 9}).min_length == 6
    with pytest.raises(InputError, match="min_length"):
        Options.from_keywords({"max_length": 5, "min_length": 6})


def test_values_that_ask_for_nothing():
    neutral = {
        "typical_p": 1.0, "top_k": 0, "min_p": 0.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "penalty_alpha": 0.0,
        "encoder_repetition_penalty": 1.0, "guidance_scale": None, "forced_eos_token_id": None,
    }  # fmt: skip
    assert Options.from_keywords({}, {**neutral, "do_sample": True}) == Options(do_sample=True)
    assert Options.not_done(neutral) == []
    assert Options.not_done({"guidance_scale": 2.0, "max_time": 3.0, "top_k": 5}) == ["guidance_scale", "max_time"]


def test_chance_in_a_file_counts_only_when_sampling():
    stored = {"temperature": 0.7, "top_k": 20, "top_p": 0.9}
    assert Options.from_keywords({}, stored) == Options()
    assert not Options.from_keywords({}, stored).samples
    assert Options.from_keywords({}, {**stored, "do_sample": True}).temperature == 0.7
    assert Options.from_keywords({"do_sample": True}, stored).top_k == 20
    assert Options.from_keywords({"do_sample": False}, {**stored, "do_sample": True}) == Options(do_sample=False)
    # asking for chance is asking to sample, whatever the file says
    assert Options.from_keywords({"top_p": 0.5}, {"do_sample": False}).samples
    assert Options.from_keywords({"seed": 5}, {"do_sample": False}).samples
    # contrastive search takes the file's top_k and nothing else
    both = Options.from_keywords({"penalty_alpha": 0.6}, stored)
    assert both.top_k == 20 and both.top_p is None and not both.samples


def test_seeds():
    assert Options(seed=7).seeds(3) == [7, 8, 9]
    assert Options(seed=7, num_return_sequences=2).seeds(2) == [7, 8, 9, 10]
    assert Options(seed=[4, 9]).seeds(2) == [4, 9]
    assert Options(seed=[4, 9], num_return_sequences=2).seeds(2) == [4, 5, 9, 10]
    assert Options(seed=[4, 9, 1, 1], num_return_sequences=2).seeds(2) == [4, 9, 1, 1]
    assert Options(seed=7, num_beams=3, num_return_sequences=2).seeds(2) == [7, 8]  # a search draws once per text
    assert Options(top_k=5).seeds(2) is None
    with pytest.raises(InputError, match="3 seeds for 2 texts"):
        Options(seed=[1, 2, 3]).seeds(2)


def test_how_much_there_is_room_for():
    assert Options(max_new_tokens=5).token_budget(3, None) == 5
    assert Options(max_length=5).token_budget(3, None) == 2
    assert Options(max_length=5, max_new_tokens=9).token_budget(3, None) == 9
    assert Options().token_budget(3, None) == 50
    assert Options(max_new_tokens=5).token_budget(10, 12) == 3  # the last one is not read
    assert Options(max_new_tokens=5, penalty_alpha=0.5, top_k=4).token_budget(10, 12) == 2  # here it is
    assert Options().token_budget(12, 12) == 1
    for options, prompt, limit in ((Options(), 13, 12), (Options(max_length=3), 3, None)):
        with pytest.raises(InputError, match="prompt has"):
            options.token_budget(prompt, limit)


def test_ends_and_padding():
    config = model("gpt2").config
    assert Options().eos_ids(config) == [2] and Options().pad_id(config) == 0
    assert Options(eos_token_id=[]).eos_ids(config) == []
    assert Options(eos_token_id=[3, 4000]).eos_ids(config) == [3]
    assert Options(pad_token_id=9).pad_id(config) == 9
    assert Options(eos_token_id=[7, 8]).pad_id(model("gpt2", pad_token_id=None).config) == 7


def test_what_the_configuration_says():
    bart = model("bart", forced_bos_token_id=11, forced_eos_token_id=2)
    out = bart.generate(ids(2, 5), max_new_tokens=4)
    assert out[:, 1].tolist() == [11, 11] and out[:, -1].tolist() == [2, 2]
    with pytest.raises(InputError, match="decoder_start_token_id"):
        model("bart", decoder_start_token_id=None).generate(ids(1, 4))


def test_generate_says_what_a_file_asks_in_vain(caplog):
    ours = model("gpt2", seed=3)
    ours.generation = {"guidance_scale": 2.0}
    try:
        with caplog.at_level(logging.WARNING, "clearhead"):
            ours.generate(ids(1, 3), max_new_tokens=1)
    finally:
        ours.generation = {}
    assert "guidance_scale" in caplog.text


def test_a_file_that_asks_for_beams_does_not_stop_a_stream():
    ours = model("gpt2", seed=3)
    plain = [int(t) for t in stream(ours, ids(1, 3), max_new_tokens=4, eos_token_id=[])]
    ours.generation = {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5, "num_return_sequences": 2}
    try:
        assert [int(t) for t in stream(ours, ids(1, 3), max_new_tokens=4, eos_token_id=[])] == plain
        with pytest.raises(InputError, match="cannot stream"):
            next(stream(ours, ids(1, 3), num_beams=2))
    finally:
        ours.generation = {}


@pytest.mark.parametrize("wrong", [[[1, 2]], torch.tensor([1, 2]), torch.zeros(1, 0).long(), torch.zeros(0, 3).long()])
def test_prompts_that_are_none(wrong):
    with pytest.raises(InputError, match=r"\(batch, time\)"):
        model("gpt2").generate(wrong)


def test_a_prompt_of_narrow_numbers():
    wide = model("gpt2").generate(ids(2, 5), max_new_tokens=5, repetition_penalty=1.2, no_repeat_ngram_size=2)
    narrow = ids(2, 5).int()
    assert torch.equal(
        model("gpt2").generate(narrow, max_new_tokens=5, repetition_penalty=1.2, no_repeat_ngram_size=2), wide
    )


def test_as_much_as_fits_takes_no_more_memory_than_that():
    """A very large number is a way to say "all there is room for"."""
    out = model("gpt2").generate(ids(1, 5), max_new_tokens=10**12, eos_token_id=[])
    fits = model("gpt2").config.max_position_embeddings - 5 + 1  # the last one is not read
    assert torch.equal(out, model("gpt2").generate(ids(1, 5), max_new_tokens=fits, eos_token_id=[]))


WRONG_KINDS = [
    ("max_new_tokens", -1), ("max_new_tokens", "x"), ("max_length", -1), ("pad_token_id", 2**70),
    ("pad_token_id", VOCAB), ("pad_token_id", "x"), ("eos_token_id", [None]), ("stop_strings", 1),
    ("do_sample", "yes"), ("early_stopping", 1), ("temperature", 2**70), ("presence_penalty", 2**63),
    ("length_penalty", 10**9), ("bad_words_ids", 1), ("bad_words_ids", [[[1]]]), ("bad_words_ids", [[1.5]]),
    ("force_words_ids", 1), ("force_words_ids", [[1.5]]), ("force_words_ids", [[VOCAB]]), ("suppress_tokens", 5),
    ("sequence_bias", {(): 1.0}), ("sequence_bias", {(1,): float("nan")}), ("exponential_decay_length_penalty", 0),
    ("forced_eos_token_id", 1.5), ("forced_eos_token_id", "x"), ("forced_eos_token_id", True),
    ("bad_words_ids", torch.tensor([1, 2])), ("do_sample", torch.tensor([1, 2])), ("stop_strings", torch.ones(2)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG_KINDS)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_value_of_the_wrong_kind_is_refused_in_words(name, value, beams):
    with pytest.raises(InputError):
        generate(model("gpt2"), ids(2, 4), num_beams=beams, **{"max_new_tokens": 3, name: value})


def test_arguments_beside_the_options_are_checked():
    ours = model("gpt2")
    with pytest.raises(InputError, match="attention_mask must be a tensor, not list"):
        generate(ours, ids(1, 2), [1, 1])
    with pytest.raises(InputError, match="past must be"):
        generate(ours, ids(1, 2), past={})
    with pytest.raises(InputError, match="decoder_start_token_id holds the token 40"):
        generate(model("bart"), ids(1, 2), decoder_start_token_id=VOCAB)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"length_penalty": 2.0}, "length_penalty has no effect without num_beams"),
        ({"early_stopping": "never"}, "early_stopping has no effect without num_beams"),
        ({"num_beams": 2, "diversity_penalty": 1.0}, "diversity_penalty has no effect without num_beam_groups"),
        ({"num_assistant_tokens": 3}, "num_assistant_tokens has no effect without assistant_model"),
        ({"output_scores": True}, "output_scores has no effect without return_dict_in_generate"),
        ({"max_length": 9, "max_new_tokens": 2}, "max_length has no effect beside max_new_tokens"),
        ({"min_length": 9}, r"after 2 new tokens at the latest, so min_length \(9\) cannot be reached"),
        ({"max_new_tokens": None, "max_length": 4, "min_new_tokens": 9}, "min_new_tokens"),
        ({"eos_token_id": [3, 99]}, "eos_token_id holds 99"),
    ],
)
def test_what_has_no_effect_is_said(options, says, caplog):
    """In Python a warning; the command line refuses it."""
    generate(model("gpt2"), ids(1, 2), **{"max_new_tokens": 2} | options)
    assert [record for record in caplog.records if re.search(says, record.getMessage())]


@pytest.mark.parametrize(
    "options",
    [
        {"length_penalty": 1.0, "early_stopping": False, "num_assistant_tokens": 5},  # the defaults
        {"num_beams": 2, "length_penalty": 2.0, "early_stopping": True},
        {"prompt_lookup_num_tokens": 2},
        {"eos_token_id": -1},
    ],
)
def test_what_has_an_effect_is_not_talked_about(options, caplog):
    generate(model("gpt2"), ids(1, 2), max_new_tokens=2, **options)
    assert not caplog.records


def test_what_a_file_holds_is_not_talked_about(caplog):
    ours = model("gpt2")
    ours.generation = {"length_penalty": 2.0, "early_stopping": True, "diversity_penalty": 0.5, "pad_token_id": 99}
    try:
        generate(ours, ids(1, 2), max_new_tokens=2)
    finally:
        ours.generation = {}
    assert not caplog.records


@pytest.mark.parametrize(
    "options",
    [
        {"pad_token_id": 99}, {"forced_eos_token_id": 99}, {"forced_bos_token_id": 99}, {"bad_words_ids": [[1, 99]]},
        {"suppress_tokens": [1, 99]}, {"begin_suppress_tokens": [99]}, {"forced_eos_token_id": [1, -2]},
        {"force_words_ids": [[1], [[2], [99]]], "num_beams": 2},
    ],
)  # fmt: skip
def test_tokens_that_the_model_does_not_have(options):
    with pytest.raises(InputError, match=rf"{next(iter(options))} holds the token (99|-2), but this model knows 0 to"):
        generate(model("gpt2"), ids(1, 2), max_new_tokens=2, **options)


@pytest.mark.parametrize("options", [{"num_beams": 10**8}, {"seed": 1, "num_return_sequences": 10**9}])
def test_more_texts_than_memory_can_hold(options):
    with pytest.raises(InputError, match="GiB"):
        generate(model("gpt2"), ids(1, 2), max_new_tokens=2, **options)


@pytest.mark.parametrize(
    "options",
    [{}, {"seed": 1}, {"num_beams": 2}, {"penalty_alpha": 0.5, "top_k": 3}, {"prompt_lookup_num_tokens": 2}],
)
def test_a_model_that_computes_nan_says_so(options):
    ours = copy.deepcopy(model("gpt2"))
    with torch.no_grad():
        for weight in ours.parameters():
            weight.fill_(torch.nan)
    with pytest.raises(InputError, match="computes NaN"):
        generate(ours, ids(1, 2), max_new_tokens=2, **options)
