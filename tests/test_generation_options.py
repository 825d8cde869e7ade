"""The one table of generation's options: complete, and all that is derived from it agrees."""

import dataclasses
import inspect
import json

import pytest
import typer

from clearhead.cli import app
from clearhead.errors import InputError
from clearhead.generate import Options
from clearhead.generation_options import COMMAND_LINE, CONFIG_KEYS, FIELDS, GROUPS, SEARCH, WARPERS, GenerationFields
from clearhead.models.config_keys import INERT


def test_every_option_has_a_group_a_help_and_a_good_default():
    for name, field in FIELDS.items():
        assert field.name == name and field.group in GROUPS and field.help.endswith("."), name
        assert field.check(field.default) == field.default
    assert {field.group for field in FIELDS.values()} == set(GROUPS)
    assert set(WARPERS) | set(SEARCH) <= set(FIELDS)
    assert all(FIELDS[name].group == "sampling" for name in WARPERS)


def test_the_options_of_a_call_are_these():
    assert [field.name for field in dataclasses.fields(Options)] == list(FIELDS)
    assert all(name in (Options.__doc__ or "") for name in FIELDS)
    assert all(title in (Options.__doc__ or "") for title in GROUPS.values())


def test_a_configuration_may_hold_these():
    """What old checkpoints of transformers keep in config.json."""
    published = """
        max_length max_new_tokens min_length min_new_tokens do_sample early_stopping num_beams num_beam_groups
        diversity_penalty temperature top_k top_p min_p top_h typical_p epsilon_cutoff eta_cutoff repetition_penalty
        length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size num_return_sequences remove_invalid_values
        exponential_decay_length_penalty suppress_tokens begin_suppress_tokens decoder_start_token_id renormalize_logits
    """.split()
    assert set(published) <= CONFIG_KEYS <= INERT
    assert not CONFIG_KEYS & {"seed", "grammar", "assistant_model", "eos_token_id", "compile"}


def test_a_form_can_be_made_of_them():
    plain = json.loads(json.dumps([field.to_dict() for field in COMMAND_LINE.values()]))
    by_name = {field["name"]: field for field in plain}
    assert by_name["top_p"]["kind"] == "float" and by_name["top_p"]["above"] == 0 and by_name["top_p"]["most"] == 1
    assert by_name["stop_strings"]["several"] and by_name["stop_strings"]["kind"] == "text"
    assert by_name["early_stopping"]["kind"] == "choice" and by_name["do_sample"]["kind"] == "bool"


def test_the_command_line_has_an_option_for_each():
    command = typer.main.get_command(app).commands["generate"]
    flags = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    for name, field in COMMAND_LINE.items():
        assert {*field.flags, f"--{name.replace('_', '-')}"} & flags, name
    params = {param.name: param for param in command.params}
    assert params["top_k"].help == FIELDS["top_k"].help
    assert params["top_k"].rich_help_panel == GROUPS["sampling"]
    assert {"--max-new-tokens", "-n", "--stop", "--prompt-lookup", "--assistant", "--choice"} <= flags


def test_values_are_checked_when_the_table_is_filled():
    GenerationFields(top_p=0.5, seed=[1, 2], stop_strings=["a"], force_words_ids=[[1], [[2, 3], [4]]])
    for wrong in ({"top_p": 2}, {"seed": [2**62]}, {"stop_strings": [""]}, {"force_words_ids": [[[]]]}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            GenerationFields(**wrong)


def test_the_table_is_documented_where_it_is_used():
    assert "generation_options" in (inspect.getmodule(Options).__doc__ or "")
