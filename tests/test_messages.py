"""Sentences with keys: both languages have the same places, and every key that is said is there."""

import copy
import pickle
import re
from importlib import import_module
from pathlib import Path
from string import Formatter

import pytest

import clearhead.messages
from clearhead.errors import InputError, did_you_mean
from clearhead.messages import Bilingual, Message, chinese_of, in_chinese, say

FOLDER = Path(clearhead.messages.__file__).parent
ROOMS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
SAID = re.compile(r'\bsay\(\s*"([a-z_]+\.[\w.-]+)"')


def sentences(room: str) -> dict[str, tuple[str, str]]:
    return import_module(f"clearhead.messages.{room}").SENTENCES


def places(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name is not None}


@pytest.mark.parametrize("room", ROOMS)
def test_both_languages_have_the_same_places(room):
    for name, (english, chinese) in sentences(room).items():
        assert english and chinese, name
        assert places(english) == places(chinese), name


def test_every_key_that_is_said_is_there():
    said = {key for path in FOLDER.parent.rglob("*.py") for key in SAID.findall(path.read_text(encoding="utf-8"))}
    known = {f"{room}.{name}" for room in ROOMS for name in sentences(room)}
    assert len(said) > 3 and said <= known, said - known


def test_a_message_is_its_english_and_knows_its_chinese():
    message = say("server.unknown_model", name="gpt", near=did_you_mean("gpt", ["gpt2", "bert"]))
    assert message == "There is no model gpt here. Did you mean gpt2?"
    assert message.chinese == "这里没有模型 gpt。你想说的是 gpt2 吗？"
    assert message.key == "server.unknown_model" and message.values["name"] == "gpt"
    error = InputError(message)
    assert isinstance(error.message, Message) and str(error) == message
    for copied in (copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert copied == message and copied.chinese == message.chinese


def test_data_may_bring_their_own_chinese():
    line = Bilingual("a small model", "小模型")
    assert (line, line.chinese, chinese_of([line])) == ("a small model", "小模型", {"0": "小模型"})
    copied = pickle.loads(pickle.dumps(line))
    assert copied == line and copied.chinese == "小模型"


def test_lists_have_the_commas_of_their_language():
    message = say("schema.one_of", choices=["html", "json", "csv"])
    assert message == "one of html, json, csv"
    assert message.chinese == "html、json、csv 之一"


def test_a_text_without_a_key_is_framed():
    assert in_chinese("Too long.") == "出了问题，说明只有英文：Too long."


def test_chinese_lies_over_plain_data():
    busy = say("server.busy")
    assert chinese_of({"a": [1, {"b": busy}], "c": "text"}) == {"a": {"1": {"b": busy.chinese}}}
    assert chinese_of({"a": [1, 2]}) is None
