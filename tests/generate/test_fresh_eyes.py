"""What a newcomer stumbled over: rules that were broken in silence, and mistakes that were not answered in words."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from typer.testing import CliRunner

import clearhead as ch
from clearhead.cli import app
from clearhead.errors import InputError
from clearhead.generate import PromptCache, generate
from tests.generate.models import VOCAB, ids, model, padded

EVERYTHING = list(range(VOCAB))
WAYS = {
    "greedy": {},
    "sampled": {"seed": 1},
    "beams": {"num_beams": 3},
    "sampled beams": {"num_beams": 3, "do_sample": True, "seed": 1},
    "groups": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
    "contrastive": {"penalty_alpha": 0.5, "top_k": 3},
    "forced": {"num_beams": 3, "force_words_ids": [[5]]},
}


class Letters:
    """Token 3 is a, 4 is b, …; the others are no text."""

    def decode(self, ids, *, skip_special_tokens=False):
        return "".join(chr(94 + token) for token in ids if token >= 3)


@pytest.fixture(scope="module")
def pipe():
    return ch.load("random-gpt2")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "rules", [{"suppress_tokens": EVERYTHING}, {"suppress_tokens": EVERYTHING[:-2], "no_repeat_ngram_size": 1}]
)
def test_no_token_left_is_said_by_every_strategy(way, rules):
    with pytest.raises(InputError, match="leave no token"):
        generate(model("gpt2"), ids(2, 4), max_new_tokens=5, **rules, **WAYS[way])


def test_more_answers_than_there_are(pipe):
    asked = {"choices": ["yes"], "num_beams": 3, "max_new_tokens": 6}
    assert pipe.generate("A", num_return_sequences=1, **asked).split()[-1].endswith("yes")
    with pytest.raises(InputError, match="Only 2 of the 3 answers"):
        pipe.generate("A", num_return_sequences=3, **asked)


def test_a_row_that_is_finished_may_have_nothing_left():
    """One text ends at once, the other goes on where the first could not."""
    rows, mask = padded([[5, 6, 7], [8, 9]])
    rules = {"num_beams": 2, "do_sample": True, "seed": [3, 4], "max_new_tokens": 8, "no_repeat_ngram_size": 1}
    got = generate(model("gpt2"), rows, mask, eos_token_id=list(range(2, 30)), **rules)
    assert len(got) == 2


def test_every_token_ends():
    ours = model("gpt2")
    got = generate(ours, ids(2, 4), num_beams=3, eos_token_id=EVERYTHING, max_new_tokens=3)
    assert got.tolist() == generate(ours, ids(2, 4), max_new_tokens=1).tolist()


@pytest.mark.parametrize("penalty", [-10.0, -4.0, 10.0])
def test_a_length_penalty_at_its_bounds_still_finds(penalty):
    got = generate(model("gpt2"), ids(2, 4), num_beams=3, num_return_sequences=3, length_penalty=penalty)
    assert got.shape[1] > 4


@pytest.mark.parametrize("seed", range(6))
def test_a_stop_string_does_not_cut_forced_words_off(seed):
    words = [[30], [31, 32]]
    got = generate(
        model("gpt2", seed), ids(2, 4, seed), tokenizer=Letters(), stop_strings=["d", "k", "q", "t"], num_beams=4,
        num_return_sequences=2, max_new_tokens=12, force_words_ids=words, return_dict_in_generate=True,
    )  # fmt: skip
    for row, length in zip(got.new_tokens.tolist(), got.lengths.tolist(), strict=True):
        text = Letters().decode(row[:length])
        assert all(Letters().decode(word) in text for word in words)


def test_a_beam_that_stops_with_its_last_token_says_so():
    given, ours = ids(1, 4), model("gpt2")
    plain = generate(ours, given, num_beams=2, max_new_tokens=3, eos_token_id=[])[0, 4:].tolist()
    text = Letters().decode(plain)
    got = generate(
        ours, given, tokenizer=Letters(), stop_strings=text, num_beams=2, max_new_tokens=3, eos_token_id=[],
        return_dict_in_generate=True,
    )  # fmt: skip
    assert got.new_tokens[0].tolist() == plain
    assert got.finish_reason == ["stop"]


def test_a_rule_does_not_end_an_answer_before_it_fits(pipe):
    """The end token was taken where a rule had forbidden all text that fits."""
    with pytest.raises(InputError, match="leave no token to write"):
        pipe.generate("A", regex="(ab){5}", no_repeat_ngram_size=1)


def test_an_answer_without_room_is_told(pipe, caplog):
    with caplog.at_level(logging.WARNING, "clearhead"):
        pipe.generate("A", regex="[0-9]{4}", max_new_tokens=4)
        assert "give more room" not in caplog.text
        pipe.generate("A", regex="[0-9]{40}", max_new_tokens=4)
    assert "give more room" in caplog.text


NOT_THAT = [
    ("max_new_tokens", -1), ("max_new_tokens", "x"), ("max_length", -1), ("pad_token_id", 2**70),
    ("pad_token_id", VOCAB), ("pad_token_id", "x"), ("eos_token_id", [None]), ("stop_strings", 1),
    ("do_sample", "yes"), ("early_stopping", 1), ("temperature", 2**70), ("presence_penalty", 2**63),
    ("length_penalty", 10**9), ("bad_words_ids", 1), ("bad_words_ids", [[[1]]]), ("bad_words_ids", [[1.5]]),
    ("force_words_ids", 1), ("force_words_ids", [[1.5]]), ("force_words_ids", [[VOCAB]]), ("suppress_tokens", 5),
    ("sequence_bias", {(): 1.0}), ("sequence_bias", {(1,): float("nan")}), ("exponential_decay_length_penalty", 0),
    ("forced_eos_token_id", 1.5), ("forced_eos_token_id", "x"), ("forced_eos_token_id", True),
    ("bad_words_ids", torch.tensor([1, 2])), ("do_sample", torch.tensor([1, 2])), ("stop_strings", torch.ones(2)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), NOT_THAT)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_value_of_the_wrong_kind_is_refused_in_words(name, value, beams):
    with pytest.raises(InputError):
        generate(model("gpt2"), ids(2, 4), num_beams=beams, **{"max_new_tokens": 3, name: value})


def test_wrong_company_is_refused():
    ours = model("gpt2")
    with pytest.raises(InputError, match="attention_mask must be a tensor, not list"):
        generate(ours, ids(1, 2), [1, 1])
    with pytest.raises(InputError, match="past must be"):
        generate(ours, ids(1, 2), past={})
    with pytest.raises(InputError, match="decoder_start_token_id is 40"):
        generate(model("bart"), ids(1, 2), decoder_start_token_id=VOCAB)


def test_a_stream_writes_one_text_and_complains_at_once(pipe):
    with pytest.raises(InputError, match="writes one text"):
        pipe.stream("A", num_return_sequences=2, seed=1)
    with pytest.raises(InputError, match="writes one text"):
        pipe.stream(("A", "B"))
    with pytest.raises(InputError, match="temperature"):
        pipe.stream("A", temprature=1.0)


def test_texts_in_a_tuple_give_a_list(pipe):
    assert pipe.generate(("A",), max_new_tokens=2) == pipe.generate(["A"], max_new_tokens=2)


def test_what_only_tensors_can_hold_is_refused(pipe):
    with pytest.raises(InputError, match=r"use \.model\.generate"):
        pipe.generate("A", output_scores=True)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_a_writing_is_written_once(pipe, options):
    writing = pipe.watch("A", max_new_tokens=2, past=PromptCache(), **options)
    writing.finish()
    with pytest.raises(InputError, match="call watch again"):
        writing.finish()
    with pytest.raises(InputError, match="call watch again"):
        list(writing.pieces())
    assert len(writing.answers[0].token_ids) == 2


def test_the_tokenizer_knows_the_end_where_the_model_does_not(pipe):
    config = pipe.model.config
    begin, end = config.bos_token_id, config.eos_token_id
    try:  # as a small model is saved whose vocabulary is its own and whose configuration is GPT-2's
        object.__setattr__(config, "bos_token_id", 50256)
        object.__setattr__(config, "eos_token_id", 50256)
        assert pipe.generate("A", choices=["yes", "no"]).strip().endswith(("yes", "no"))
        assert isinstance(pipe.generate(max_new_tokens=2), str)
    finally:
        object.__setattr__(config, "bos_token_id", begin)
        object.__setattr__(config, "eos_token_id", end)


def test_the_newline_that_closes_a_piped_prompt_is_no_part_of_it():
    asked = ["generate", "-", "-n", "3", "--json"]
    piped, plain = (CliRunner().invoke(app, asked, input=text) for text in ("The robot\n", "The robot"))
    assert json.loads(piped.stdout)["prompt"] == json.loads(plain.stdout)["prompt"] == "The robot"
