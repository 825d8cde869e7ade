"""What a loaded model writes: one text once, in pieces or to its end, and mistakes that are answered in words."""

from __future__ import annotations

import pytest

import clearhead as ch
from clearhead.errors import InputError
from clearhead.generate import PromptCache


@pytest.fixture(scope="module")
def pipe():
    return ch.load("random-gpt2")


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
    generation = pipe.start_generation("A", max_new_tokens=2, past=PromptCache(), **options)
    generation.finish()
    with pytest.raises(InputError, match="call start_generation again"):
        generation.finish()
    with pytest.raises(InputError, match="call start_generation again"):
        list(generation.pieces())
    assert len(generation.answers[0].token_ids) == 2
