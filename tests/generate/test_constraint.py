"""Texts of a given form: a constraint written by hand obeys the protocol, and generate obeys it; so with grammars."""

from __future__ import annotations

import logging

import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.generate import Grammar, TokenConstraint, generate
from clearhead.generate.constraint import constrain, token_constraint
from tests.generate.models import VOCAB, ids, model

END = 2


@pytest.fixture(scope="module")
def pipe():
    return ch.load("random-gpt2")


class Rising:
    """Numbers that rise, `count` of them; a state is (the last number, how many, whether it has ended)."""

    description = "numbers that rise"
    vocab_size = VOCAB
    is_text = torch.arange(VOCAB) > END

    def __init__(self, count: int) -> None:
        self.count = count

    def start(self) -> tuple[int, int, bool]:
        return END, 0, False

    def allowed(self, state: tuple[int, int, bool], remaining: int | None = None) -> torch.Tensor:
        last, written, ended = state
        missing = self.count - written
        numbers = torch.arange(VOCAB)
        if ended or missing == 0:
            return numbers == END
        return (numbers > last) & (numbers <= VOCAB - missing)  # enough larger ones must be left

    def advance(self, state: tuple[int, int, bool], token: int) -> tuple[int, int, bool] | None:
        last, written, ended = state
        if ended or token < END:
            return state
        if token == END:
            return last, written, True
        return (token, written + 1, False) if token > last and written < self.count else None

    def is_finished(self, state: tuple[int, int, bool]) -> bool:
        return state[2]

    def can_complete(self, state: tuple[int, int, bool]) -> bool:
        return self.count - state[1] <= 1


WAYS = {
    "greedy": {},
    "sampled": {"seed": 1, "num_return_sequences": 3},
    "beams": {"num_beams": 4, "num_return_sequences": 2},
    "contrastive": {"penalty_alpha": 0.5, "top_k": 4},
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["gpt2", "bart", "transfo-xl"])
def test_a_constraint_written_by_hand(name, way):
    if (name, way) == ("transfo-xl", "prompt lookup"):
        pytest.skip("its state cannot go back")
    constraint = Rising(5)
    assert isinstance(constraint, TokenConstraint)
    out = generate(model(name), ids(2, 4), tokenizer=object(), grammar=constraint, max_new_tokens=9,
                   eos_token_id=END, return_dict_in_generate=True, **WAYS[way])  # fmt: skip
    for row, length, reason in zip(out.new_tokens.tolist(), out.lengths.tolist(), out.finish_reason, strict=True):
        *text, end = row[:length]
        assert len(text) == 5 and text == sorted(set(text)) and min(text) > END and end == END
        assert reason == "end"


def test_a_constraint_sees_each_token_once_and_follows_beams_that_change_places():
    seen = []

    class Watched(Rising):
        def advance(self, state, token):
            seen.append((state, token))
            return super().advance(state, token)

    process = constrain(Watched(3), prompt_length=1)
    prompt = torch.tensor([[9], [9]])
    process(prompt, torch.zeros(2, VOCAB))
    process(torch.cat([prompt, torch.tensor([[5], [7]])], 1), torch.zeros(2, VOCAB))
    swapped = process(torch.cat([prompt, torch.tensor([[7, 8], [5, 6]])], 1), torch.zeros(2, VOCAB))
    assert sorted(token for _, token in seen) == [5, 6, 7, 8]
    assert [int((row > -torch.inf).nonzero()[0]) for row in swapped] == [9, 7]


def test_what_is_no_constraint():
    with pytest.raises(InputError, match="knows 40 tokens, and the model writes 50"):
        token_constraint(Rising(2), None, [END], 50)
    for wrong in ("a|b", 3, object()):
        with pytest.raises(InputError, match=r"grammar must be a clearhead\.generate\.Grammar"):
            token_constraint(wrong, None, [END], VOCAB)


def test_grammars_obey_the_protocol(pipe):
    constraint = token_constraint(Grammar.choices(["yes", "no"]), pipe.tokenizer, [0], pipe.model.config.vocab_size)
    assert isinstance(constraint, TokenConstraint)
    assert constraint.vocab_size == pipe.model.config.vocab_size and constraint.is_text.shape == (
        constraint.vocab_size,
    )
    state = constraint.advance(constraint.start(), 0)
    assert state is not None and constraint.is_finished(state)


def test_more_answers_than_there_are(pipe):
    asked = {"choices": ["yes"], "num_beams": 3, "max_new_tokens": 6}
    assert pipe.generate("A", num_return_sequences=1, **asked).split()[-1].endswith("yes")
    with pytest.raises(InputError, match="Only 2 of the 3 answers"):
        pipe.generate("A", num_return_sequences=3, **asked)


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
