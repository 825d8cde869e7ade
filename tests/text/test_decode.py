"""Ids become text again, as in `transformers`."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import InputError
from clearhead.text import load_tokenizer
from clearhead.text.cleanup import REMOVALS, clean_up, stable_length
from tests.text.compare import both
from tests.text.samples import awkward_texts


def test_random_ids_decode_as_in_transformers(folder):
    ours, theirs = both(folder)
    generator = torch.Generator().manual_seed(0)
    for _ in range(80):
        ids = torch.randint(0, len(ours), (20,), generator=generator).tolist()
        for skip in (False, True):
            for clean in (None, False, True):
                options = {"skip_special_tokens": skip, "clean_up_tokenization_spaces": clean}
                assert ours.decode(ids, **options) == theirs.decode(ids, **options)


def test_byte_level_text_survives_the_round_trip(trained):
    tok = load_tokenizer(trained["bpe"])
    for text in awkward_texts(200, seed=9):
        assert tok.decode(tok(text)["input_ids"]) == text


def test_every_form_of_ids(trained):
    tok = load_tokenizer(trained["wordpiece"])
    ids = tok.encode("the man said")
    wanted = "[CLS] the man said [SEP]"
    for form in (ids, tuple(ids), np.array(ids), torch.tensor(ids), [torch.tensor(i) for i in ids], iter(ids)):
        assert tok.decode(form) == wanted
    assert tok.decode(ids[1]) == tok.decode(torch.tensor(ids[1])) == "the"
    assert tok.decode([]) == ""
    assert tok.batch_decode([ids, ids[:2]], skip_special_tokens=True) == ["the man said", "the"]
    assert tok.batch_decode(torch.tensor([ids])) == tok.batch_decode(np.array([ids])) == [wanted]


def test_ids_beyond_the_vocabulary_decode_to_nothing(trained):
    """Models often have a few more rows than the tokenizer has tokens."""
    tok = load_tokenizer(trained["wordpiece"])
    assert tok.decode([*tok.encode("the", add_special_tokens=False), len(tok) + 5]) == "the"


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, -100], "loss"),
        ([-1], "-1 is not a token id"),
        ([2**40], "not a token id"),
        ([1.5], "not a token id"),
        (["a"], "not a token id"),
        ("abc", "str"),
        (None, "NoneType"),
        ([[1, 2]], "batch_decode"),
        (torch.ones(2, 2, dtype=torch.long), "batch_decode"),
        ([torch.ones(2, dtype=torch.long)], "batch_decode"),
    ],
)
def test_what_is_no_id_is_explained(trained, ids, words):
    with pytest.raises(InputError, match=words):
        load_tokenizer(trained["wordpiece"]).decode(ids)


def test_cleaning_up_is_the_callers_or_the_configurations_choice(trained):
    tok = load_tokenizer(trained["unigram"])
    ids = tok.encode("no more , he said .", add_special_tokens=False)
    assert tok.decode(ids) == "no more , he said ."
    assert tok.decode(ids, clean_up_tokenization_spaces=True) == "no more, he said."
    tok.clean_up_tokenization_spaces = True
    assert tok.decode(ids) == "no more, he said."
    assert tok.decode(ids, clean_up_tokenization_spaces=False) == "no more , he said ."


def test_byte_level_text_is_never_cleaned_up(trained):
    tok = load_tokenizer(trained["bpe"])
    tok.clean_up_tokenization_spaces = True
    ids = tok.encode("no more , he said .")
    assert tok.decode(ids) == tok.decode(ids, clean_up_tokenization_spaces=True) == "no more , he said ."


def test_known_removals():
    assert clean_up("it 's , I 'm ; don n't . no ? ! we 've you 're ' a") == "it's, I'm ; donn't. no?! we've you're'a"


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    text=st.text(alphabet=" .?!,'ntmsverab", max_size=40),
    after=st.text(alphabet=" .?!,'ntmsverab", max_size=12),
)
def test_stable_text_does_not_change_with_what_follows(text, after):
    place = stable_length(text)
    assert clean_up(text[:place]) + clean_up(text[place:] + after) == clean_up(text + after)


@pytest.mark.parametrize("found", [found for found, _ in REMOVALS])
def test_every_removal_is_found_wherever_the_text_is_cut(found):
    for cut in range(len(found) + 1):
        text, after = "ab" + found[:cut], found[cut:] + "ab"
        place = stable_length(text)
        assert clean_up(text[:place]) + clean_up(text[place:] + after) == clean_up(text + after)


def test_ordinary_text_settles():
    longest = max(len(found) for found, _ in REMOVALS)
    assert stable_length("a word") == len("a word")
    assert stable_length("a word ") == len("a word")
    assert stable_length("." * longest) == longest
