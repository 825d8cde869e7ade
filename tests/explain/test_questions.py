"""One table of questions: each is answered by every model it fits, refused in words elsewhere, and trusts no value."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from clearhead import explain
from clearhead.errors import InputError
from clearhead.explain.questions import QUESTIONS, question
from clearhead.explain.settings import LONGEST, IndicesSetting, ModelSetting, Setting
from clearhead.messages import Message, chinese_of
from clearhead.pipeline import TextPipeline
from clearhead.views.page import WEB
from tests.tiny import TEXT, tiny_pipeline

MODELS = [
    ("bert", "masked-lm"), ("roberta", "masked-lm"), ("deberta-v2", "masked-lm"), ("bert", "pretraining"),
    ("bert", "sequence-classification"), ("bert", "token-classification"), ("bert", "next-sentence"),
    ("bert", "question-answering"), ("bert", "multiple-choice"), ("bert", "features"), ("xlnet", "permutation-lm"),
    ("gpt2", "causal-lm"), ("gptj", "causal-lm"), ("transfo-xl", "causal-lm"), ("gpt2", "sequence-classification"),
    ("transformer", "seq2seq-lm"), ("t5", "seq2seq-lm"), ("bart", "sequence-classification"),
    ("rnn-seq2seq", "seq2seq-lm"), ("rnn", "causal-lm"), ("rnn", "sequence-classification"),
    ("rnn", "token-classification"), ("rnn", "features"),
]  # fmt: skip
# What some models must be told besides the text.
TOLD = {
    ("token-classification", "ablation"): {"position": 2},
    ("token-classification", "patching"): {"position": 2},
    ("multiple-choice", "prediction"): {"choices": "and sat, and ran"},
}


@cache
def model(name, task):
    return tiny_pipeline(name, task)


def text_for(task):
    return TEXT.replace("on", "[MASK]", 1) if task in ("masked-lm", "pretraining") else TEXT


def second_for(task, name):
    needed = name in ("patching", "text-picture-matrix") or (
        name == "prediction" and task in ("next-sentence", "question-answering")
    )
    return text_for(task).replace("cat", "mat", 1) if needed else None


@pytest.mark.parametrize(("family", "task"), MODELS)
def test_a_question_is_answered_where_it_fits_and_nowhere_else(family, task):
    pipe = model(family, task)
    for name, one in QUESTIONS.items():
        text, second, told = text_for(task), second_for(task, name), TOLD.get((task, name), {})
        reason = one.fits(pipe)
        if reason is None:
            found = one.ask(pipe, text, second, **told)
            assert found.kind == one.kind, name
            json.dumps(found.to_dict(), allow_nan=False)
            assert len(list(found.table())) > 1
            continue
        assert reason.endswith(".")
        with pytest.raises(InputError) as refused:
            one.ask(pipe, text, second, **told)
        assert str(refused.value) == reason
        with pytest.raises(InputError):  # and it is right: the model itself cannot
            one.answer(pipe, text, second, **one.checked(told))


def test_which_questions_fit():
    fits = {task: {n for n, q in QUESTIONS.items() if q.fits(model(f, task)) is None} for f, task in MODELS}
    of_words = {"neighbours", "word-map", "text-picture-matrix"}  # of a table alone; of pictures
    every = set(QUESTIONS) - of_words
    unanswered = {which: {n for n in every if QUESTIONS[n].fits(model(*which)) is not None} for which in MODELS}
    recurrent = {"gates", "echo", "alignment-steps", "length-curve"}  # the last is about shipped translators
    assert unanswered["gpt2", "causal-lm"] == unanswered["t5", "seq2seq-lm"] == {"prediction", *recurrent}
    in_layers = {"query-key", "attention-steps", "ablation", "cache", "positions", "length-curve"}
    assert unanswered["rnn-seq2seq", "seq2seq-lm"] == {"prediction", *in_layers}
    assert unanswered["rnn", "causal-lm"] == {"prediction", "attention", "alignment-steps", *in_layers}
    assert every - fits["masked-lm"] == {"next-token", "sampling", "beams", "cache", *recurrent}
    assert fits["multiple-choice"] == {"prediction", "positions", "parameters"}
    bare = TextPipeline(model("gpt2", "causal-lm").model, None, name="bare")
    assert {n for n, q in QUESTIONS.items() if q.fits(bare) is None} == {"positions", "parameters"}
    assert "tokenizer files" in QUESTIONS["attention"].fits(bare)


# Each question with every parameter away from its default, and the same call in Python.
GPT = ("gpt2", "causal-lm")
SAME = [
    ("attention", GPT, {"layers": "1-2", "heads": [0, 3], "words": "yes"},
     lambda p: explain.attention(p, TEXT, layers=[1, 2], heads=[0, 3], words=True)),
    ("attention", ("t5", "seq2seq-lm"), {"side": "decoder", "target": "a dog"},
     lambda p: explain.attention(p, TEXT, side="decoder", target="a dog")),
    ("query-key", GPT, {"layer": "2", "head": 1.0, "position": 3},
     lambda p: explain.query_key(p, TEXT, layer=2, head=1, position=3)),
    ("query-key", ("t5", "seq2seq-lm"), {"side": "decoder", "target": "a dog"},
     lambda p: explain.query_key(p, TEXT, side="decoder", target="a dog")),
    ("attention-steps", GPT, {"layer": 2}, lambda p: explain.attention_steps(p, TEXT, layer=2)),
    ("attention-steps", ("t5", "seq2seq-lm"), {"side": "decoder", "target": "a dog"},
     lambda p: explain.attention_steps(p, TEXT, side="decoder", target="a dog")),
    ("alignment-steps", ("rnn-seq2seq", "seq2seq-lm"), {"k": 2, "target": "a dog"},
     lambda p: explain.alignment_steps(p, TEXT, "a dog", 2)),
    ("gates", ("rnn-seq2seq", "seq2seq-lm"), {"side": "encoder", "direction": "reverse"},
     lambda p: explain.gates(p, TEXT, side="encoder", direction="reverse")),
    ("gates", ("rnn-seq2seq", "seq2seq-lm"), {"target": "a dog"}, lambda p: explain.gates(p, TEXT, target="a dog")),
    ("ablation", GPT, {"layers": 1, "heads": "2", "position": 4, "chosen": "dog", "how": "mean", "k": 3},
     lambda p: explain.ablation(p, TEXT, layers=1, heads=2, position=4, chosen=" dog", how="mean", top_k=3)),
    ("ablation", ("t5", "seq2seq-lm"), {"side": "decoder", "target": "a dog"},
     lambda p: explain.ablation(p, TEXT, side="decoder", target="a dog")),
    ("saliency", GPT, {"method": "integrated-gradients", "outputs": "4,5", "target": " and sat", "steps": 3,
                       "against": "dog"},
     lambda p: explain.saliency(p, TEXT, method="integrated-gradients", outputs=[4, 5], target=" and sat", steps=3,
                                against=" dog")),
    ("saliency", GPT, {"max_new_tokens": 2}, lambda p: explain.saliency(p, TEXT, max_new_tokens=2)),
    ("patching", GPT, {"tap": "attention.heads", "by": "head", "chosen": "dog", "against": "cat", "layers": "1",
                       "heads": "0,2", "position": 5, "k": 2},
     lambda p: explain.patching(p, TEXT, TEXT.replace("cat", "mat", 1), "attention.heads", "head", " dog", " cat",
                                layers=1, heads=[0, 2], position=5, top_k=2)),
    ("patching", ("t5", "seq2seq-lm"), {"side": "decoder", "target": "a dog", "positions": "1"},
     lambda p: explain.patching(p, TEXT, TEXT.replace("cat", "mat", 1), side="decoder", target="a dog", positions=1)),
    ("patching", GPT, {"tap": "attention.heads", "by": "position", "positions": "1,2"},
     lambda p: explain.patching(p, TEXT, TEXT.replace("cat", "mat", 1), "attention.heads", "position",
                                positions=[1, 2])),
    ("hidden-states", GPT, {"positions": "2-4", "chosen": '"at"', "k": 2},
     lambda p: explain.hidden_states(p, TEXT, [2, 3, 4], "at", 2)),
    ("hidden-states", ("t5", "seq2seq-lm"), {"target": "a dog"},
     lambda p: explain.hidden_states(p, TEXT, target="a dog")),
    ("comparison", ("t5", "seq2seq-lm"), {"candidates": "a, s", "target": "a dog", "position": 1},
     lambda p: explain.hidden_states(p, TEXT, 1, candidates=["a", "s"], target="a dog")),
    ("comparison", GPT, {"candidates": 'dog, " cat","at"', "position": 2},
     lambda p: explain.hidden_states(p, TEXT, 2, candidates=[" dog", " cat", "at"])),
    ("similarity", GPT, {"measure": "cca", "layers": 1, "other_layers": "0-1", "variance": "0.1", "skip": 1},
     lambda p: explain.similarity(p, TEXT, None, "cca", 1, [0, 1], variance=0.1, skip=1)),
    ("similarity", GPT, {"unbiased": False}, lambda p: explain.similarity(p, TEXT, unbiased=False)),
    ("neurons", GPT, {"layers": 1, "k": 9, "clusters": 2, "seed": 3, "max_new_tokens": 2},
     lambda p: explain.neurons(p, TEXT, 1, top=9, clusters=2, seed=3, max_new_tokens=2)),
    ("neurons", ("t5", "seq2seq-lm"), {"side": "encoder"}, lambda p: explain.neurons(p, TEXT, side="encoder")),
    ("neurons", ("t5", "seq2seq-lm"), {"target": "a dog"}, lambda p: explain.neurons(p, TEXT, target="a dog")),
    ("top-tokens", GPT, {"layer": 1, "neuron": 7, "k": 2, "around": 1},
     lambda p: explain.top_tokens(p, [TEXT], 1, 7, top=2, around=1)),
    ("neuron-probe", GPT, {"property": "sentence-position", "layers": "1", "k": 2},
     lambda p: explain.neuron_probe(p, [TEXT], "sentence-position", 1, top=2)),
    ("gates", ("rnn", "causal-lm"), {"layer": 1, "direction": "forward", "k": 3, "max_new_tokens": 2},
     lambda p: explain.gates(p, TEXT, 1, top=3, max_new_tokens=2)),
    ("echo", ("rnn-seq2seq", "seq2seq-lm"), {"layer": 0, "direction": "reverse", "side": "encoder"},
     lambda p: explain.echo(p, TEXT, 0, direction="reverse")),
    ("echo", ("rnn-seq2seq", "seq2seq-lm"), {"side": "decoder", "target": "a dog"},
     lambda p: explain.echo(p, TEXT, side="decoder", target="a dog")),
    ("factors", GPT, {"layers": "0,2", "factors": 3, "k": 2, "seed": 1, "max_new_tokens": 2},
     lambda p: explain.factors(p, TEXT, [0, 2], n=3, top=2, seed=1, max_new_tokens=2)),
    ("next-token", GPT, {"k": 3}, lambda p: explain.next_token(p, TEXT, 3)),
    ("next-token", ("t5", "seq2seq-lm"), {"target": "a dog"}, lambda p: explain.next_token(p, TEXT, target="a dog")),
    ("sampling", GPT, {"temperature": 0.5, "top_k": 9, "top_p": "0.8", "seed": 2, "draws": 3, "k": 5},
     lambda p: explain.sampling(p, TEXT, 0.5, 9, 0.8, seed=2, draws=3, show=5)),
    ("beams", GPT, {"num_beams": 2, "max_new_tokens": 3, "length_penalty": 2},
     lambda p: explain.beams(p, TEXT, 2, 3, length_penalty=2.0)),
    ("beams", GPT, {"num_beams": 1, "beside": 1}, lambda p: explain.beams(p, TEXT, 1, beside=1)),
    ("prediction", ("bert", "sequence-classification"), {}, lambda p: explain.prediction(p, TEXT)),
    ("prediction", ("bert", "masked-lm"), {"k": 2}, lambda p: explain.prediction(p, text_for("masked-lm"), top_k=2)),
    ("walk", GPT, {"layer": 1, "head": 2, "position": 3, "numbers": 4, "k": 2},
     lambda p: explain.walk(p, TEXT, layer=1, head=2, position=3, numbers=4, top_k=2)),
    ("walk", ("t5", "seq2seq-lm"), {"side": "encoder", "target": "a dog"},
     lambda p: explain.walk(p, TEXT, side="encoder", target="a dog")),
    ("walk", ("t5", "seq2seq-lm"), {"target": "a dog"}, lambda p: explain.walk(p, TEXT, target="a dog")),
    ("word-in-context", GPT, {"word": "cat", "layers": "0-1"},
     lambda p: explain.word_in_context(p, TEXT, "cat", [0, 1])),
    ("positions", GPT, {"length": 9, "layer": 1}, lambda p: explain.positions(p, 9, 1)),
    ("parameters", GPT, {}, lambda p: explain.parameters(p)),
    ("parameters", GPT, {"published": "gpt2"}, lambda p: explain.parameters("gpt2")),
    ("cache", GPT, {"max_new_tokens": 3}, lambda p: explain.caching(p, TEXT, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "which", "params", "call"), SAME)
def test_the_answer_is_that_of_the_function(name, which, params, call):
    pipe = model(*which)
    found = QUESTIONS[name].ask(pipe, text_for(which[1]), second_for(which[1], name), **params)
    assert_alike(found.to_dict(), call(pipe).to_dict())


def assert_alike(a, b):
    """The same, but for rounding: a model may lay out its weights anew after it has written for the first time."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = list(a.values()), list(b.values())
    if isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_alike(one, other)
    else:
        assert a == (pytest.approx(b, rel=1e-3, abs=1e-5) if isinstance(b, float) else b)


def test_every_parameter_is_tried_above():
    tried = {name: set() for name in QUESTIONS}
    for name, _, params, _ in SAME:
        tried[name] |= set(params)
    missing = {name: {p.name for p in q.params} - tried[name] for name, q in QUESTIONS.items()}
    missing["similarity"].discard("other")  # below
    missing["neighbours"].discard("k")  # test_word_map.py
    missing["word-in-context"].discard("table")  # test_word_in_context.py
    missing["factors"] -= {"side", "target"}  # handed on as those of neurons
    missing["length-curve"].discard("others")  # in test_length_curve.py
    missing["prediction"].discard("choices")  # above, with every task
    assert not {name: left for name, left in missing.items() if left}


# ---- two texts, two models, words that were chosen


def test_a_second_text():
    bert = model("bert", "masked-lm")
    one, two = "the cat sat", "on the [MASK]"
    found = QUESTIONS["attention"].ask(bert, one, two)
    np.testing.assert_array_equal(found.weights, explain.attention(bert, one, two).weights)
    assert {token.segment for token in found.tokens} == {0, 1}
    with pytest.raises(InputError, match="one text: leave the second"):
        QUESTIONS["walk"].ask(bert, one, two)
    with pytest.raises(InputError, match="about two texts"):
        QUESTIONS["patching"].ask(bert, one, " ")
    with pytest.raises(InputError, match="second text must be a string, not int"):
        QUESTIONS["attention"].ask(bert, one, 3)


def test_a_second_model():
    ours, theirs = model(*GPT), model("bert", "masked-lm")
    asked = QUESTIONS["similarity"]
    found = asked.ask(ours, f"{TEXT}\n\n{TEXT} away", other=theirs)
    assert found.to_dict() == explain.similarity(ours, [TEXT, f"{TEXT} away"], theirs, unbiased=True).to_dict()
    many = "\n".join([TEXT] * 9)  # enough tokens for several directions
    few, most = (asked.ask(ours, many, measure="cca", variance=v).values for v in (0.2, 0.99))
    assert not np.allclose(few, most)
    assert asked.checked({"other": "some-name"})["other"] == "some-name"  # for whoever loads it
    with pytest.raises(InputError, match="has to be loaded"):
        asked.ask(ours, TEXT, other="some-name")
    with pytest.raises(InputError, match="other is 3; it must be the name of a model"):
        asked.ask(ours, TEXT, other=3)
    with pytest.raises(InputError, match="several texts at once"):
        asked.ask(ours, TEXT, other=model("bert", "multiple-choice"))


def test_words_are_chosen_as_they_would_go_on():
    pipe = model(*GPT)
    asked = QUESTIONS["comparison"]
    tokens = {name: pipe.tokenizer.encode(name)[0] for name in (" dog", " cat", "at")}

    def ids(text, said):
        return [c.id for c in asked.ask(pipe, text, candidates=said).candidates]

    assert ids("the", "dog, cat") == [tokens[" dog"], tokens[" cat"]]
    assert ids("the", '"at",cat') == [tokens["at"], tokens[" cat"]]
    assert ids("the", '",", dog')[0] == pipe.tokenizer.encode(",")[0]
    assert ids("我喜欢", "dog，cat") == [tokens[" dog"], tokens[" cat"]]
    space = ids("the ", "at, a")
    assert space == [tokens["at"], pipe.tokenizer.encode("a")[0]]
    two = asked.ask(pipe, TEXT)
    likeliest = explain.next_token(pipe, TEXT, 2).candidates
    assert [c.id for c in two.candidates] == [c.token_id for c in likeliest]
    early = asked.ask(pipe, TEXT, position=2)
    there = explain.hidden_states(pipe, TEXT, 2, top_k=2).top[-1][0]
    assert [c.text for c in early.candidates] == [text for text, _ in there]
    with pytest.raises(InputError, match="two candidates or more"):
        asked.ask(pipe, TEXT, candidates="dog,")
    with pytest.raises(InputError, match=r"'unbelievablest' is .* tokens"):
        asked.ask(pipe, TEXT, candidates="dog, unbelievablest")


def test_a_translator_begins_where_nothing_is_written():
    pipe = model("t5", "seq2seq-lm")
    asked = QUESTIONS["comparison"]
    found = asked.ask(pipe, TEXT, candidates="a, s")
    assert found.position == 0 and len(found.tokens) == 1
    own = asked.ask(pipe, TEXT, candidates="a, s", position=1)  # of the answer that the model writes itself
    assert own.position == 1 and len(own.tokens) > 1
    later = asked.ask(pipe, TEXT, candidates="a, s", target="a dog")
    assert len(later.tokens) > 1 and later.position == len(later.tokens) - 1


def test_labels_are_chosen_by_name():
    pipe = model("bert", "sequence-classification")
    found = QUESTIONS["saliency"].ask(pipe, TEXT, target="LABEL_1", against="LABEL_0")
    assert (found.outputs[0].text, found.outputs[0].against) == ("LABEL_1", "LABEL_0")
    assert "LABEL_1" in QUESTIONS["ablation"].ask(pipe, TEXT, chosen="LABEL_1").metric
    with pytest.raises(InputError, match=r"no label 'LABEL_2'.*Did you mean"):
        QUESTIONS["saliency"].ask(pipe, TEXT, target="LABEL_2")
    masked = model("bert", "masked-lm")
    assert QUESTIONS["saliency"].ask(masked, text_for("masked-lm"), target="cat").outputs[0].text == "cat"


def test_the_neuron_that_a_corpus_excites_is_found():
    for pipe, words in ((model(*GPT), slice(None)), (model("bert", "features"), slice(1, -1))):  # [CLS] is no word
        found = QUESTIONS["top-tokens"].ask(pipe, f"{TEXT}\n\na dog sat", layer=1)
        fired = explain.neurons(pipe, TEXT, 1, top=None)
        fires = fired.activations[:, words]
        strongest = int((fires.max(axis=1) - fires.mean(axis=1)).argmax())  # not one that always fires
        assert (found.layer, found.neuron) == fired.neurons[strongest]
        assert found.texts == 2


# ---- values


INT = Setting(name="k", key="seed", type=int, default=5, least=1, most=9)
FLOAT = Setting(name="f", key="seed", type=float, default=1.0)
YES_NO = Setting(name="b", key="seed", type=bool, default=False)
TYPED = Setting(name="t", key="seed", type=str)
COLOUR = Setting(name="c", key="seed", choices=("red", "blue"), default="red")
NUMBERS = IndicesSetting(name="layers", key="layers")
BAD = [
    (INT, "three", "k is 'three'; it must be a whole number from 1 to 9"), (INT, 2.5, "k is 2.5; it must be a whole"),
    (INT, True, "k is True"), (INT, [1], r"k is \[1\]"), (INT, "1e3", "k is 1000"), (INT, float("nan"), "k is nan"),
    (INT, 10**400, "whole number"), (INT, "9" * 5000, "k is '9999.*…"), (INT, 0, "k is 0; .* from 1 to 9"),
    (INT, "10", "from 1 to 9"), (replace(INT, most=None), -1, "k is -1; it must be a whole number of at least 1"),
    (replace(FLOAT, least=0.5, most=2), "2.5", "f is 2.5; it must be a number from 0.5 to 2"),
    (FLOAT, "inf", "f is 'inf'; it must be a number"), (FLOAT, {}, "f is {}"), (FLOAT, True, "f is True"),
    (FLOAT, 10**400, "must be a number"), (YES_NO, "perhaps", "b is 'perhaps'; it must be true or false"),
    (YES_NO, [], "true or false"), (TYPED, 3, "t is 3; it must be a text"),
    (TYPED, "x" * (LONGEST + 1), "20,001 characters; 20,000 are the most"),
    (COLOUR, "bleu", "c is 'bleu'; it must be one of red, blue. Did you mean blue"), (COLOUR, ["red"], "red, blue"),
    (NUMBERS, "1;2", "layers is '1;2'; it must be numbers such as 3, or 0-2,5"), (NUMBERS, [1, "x"], "numbers such as"),
    (NUMBERS, [True], "numbers such as"), (NUMBERS, 1.5, "numbers such as"),
    (NUMBERS, "3-1", "counts backwards; write 1-3"), (NUMBERS, "0-999999999", "10,000 numbers are the most"),
    (ModelSetting(name="other", key="similarity.other"), ["a"], "must be the name of a model"),
]  # fmt: skip


@pytest.mark.parametrize(("param", "value", "words"), BAD)
def test_bad_values_are_refused_in_words(param, value, words):
    with pytest.raises(InputError, match=words) as refused:
        param.parse(value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("param", "value", "wanted"),
    [
        (INT, " 7 ", 7), (INT, 3.0, 3), (INT, None, 5), (INT, "", 5), (INT, " ", 5),
        (replace(INT, least=None), "-1", -1), (FLOAT, "0.25", 0.25), (FLOAT, 2, 2.0), (YES_NO, "Yes", True),
        (replace(YES_NO, default=True), "off", False), (replace(YES_NO, default=True), False, False),
        (TYPED, " is ", " is "), (TYPED, "", None), (COLOUR, " blue", "blue"), (NUMBERS, "all", None),
        (NUMBERS, 3, [3]), (NUMBERS, "0 - 2, 5 -1", [0, 1, 2, 5, -1]), (NUMBERS, "0-2，5，-1", [0, 1, 2, 5, -1]),
        (NUMBERS, [2, "4-5"], [2, 4, 5]),
    ],
)  # fmt: skip
def test_good_values_become_what_they_mean(param, value, wanted):
    got = param.parse(value)
    assert got == wanted and type(got) is type(wanted)
    assert param.parse(got) == wanted  # looking twice changes nothing


def test_what_is_asked_is_looked_at_before_the_model_runs():
    asked, pipe = QUESTIONS["attention"], model(*GPT)
    with pytest.raises(
        InputError, match=r"attention has no parameter 'layer'; it has layers, heads.*Did you mean layers"
    ):
        asked.ask(pipe, TEXT, layer=1)
    with pytest.raises(InputError, match="parameters has no parameter 'text2'; it has none"):
        replace(QUESTIONS["parameters"], params=()).checked({"text2": 1})
    for name in ("text", "pipe", "self"):  # a page may say anything
        with pytest.raises(InputError, match=f"no parameter '{name}'"):
            asked.ask(pipe, TEXT, **{name: "x"})
    for nothing in ("", "  \n", None):
        with pytest.raises(InputError, match="no text to explain"):
            asked.ask(pipe, nothing)
    with pytest.raises(InputError, match="text must be a string, not list"):
        asked.ask(pipe, [TEXT])
    assert QUESTIONS["next-token"].ask(pipe, "").text == ""
    with pytest.raises(InputError, match="no layer 9"):
        asked.ask(pipe, TEXT, layers="9")
    with pytest.raises(InputError, match="reads at most 48"):
        asked.ask(pipe, TEXT * 30)


def test_an_unknown_question_is_refused():
    assert question("saliency") is QUESTIONS["saliency"]
    with pytest.raises(InputError, match=r"There is no question 'salency'\. Did you mean saliency"):
        question("salency")
    for odd in (None, 3, ["saliency"], "x" * 9999):
        with pytest.raises(InputError, match="There is no question"):
            question(odd)


def test_the_table_can_be_sent_and_drawn():
    sent = json.loads(json.dumps([one.to_dict() for one in QUESTIONS.values()], allow_nan=False))
    assert {one["name"] for one in sent} == set(QUESTIONS)
    for one in QUESTIONS.values():
        assert (WEB / f"{one.kind.replace('-', '_')}.js").is_file(), one.kind
        names = [param.name for param in one.params]
        assert len(set(names)) == len(names) and all(name.isidentifier() for name in names)
        assert one.help.endswith((".", "?")) and one.title.endswith("?")
        for param in one.params:
            assert param.help.endswith("."), param
            assert param.default is None or param.parse(param.default) == param.default
    groups = [one.group for one in QUESTIONS.values()]
    assert groups == sorted(groups, key=groups.index)  # each group stands together
    both, single = model("t5", "seq2seq-lm"), model(*GPT)
    assert "target" in {p.name for p in QUESTIONS["attention"].params_for(both)}
    assert {p.name for p in QUESTIONS["attention"].params_for(single)} == {"layers", "heads", "words"}


@pytest.mark.parametrize("name", ["ablation", "saliency", "hidden-states", "comparison", "patching"])
def test_a_page_is_not_told_the_names_of_python(name):
    """What is missing is said in words that hold for a form, a terminal and a function."""
    with pytest.raises(InputError) as told:
        QUESTIONS[name].ask(model("bert", "masked-lm"), "the cat sat", "the dog sat" if name == "patching" else None)
    assert "[MASK]" in str(told.value)
    assert "=" not in str(told.value)


def test_every_word_has_its_chinese():
    """Titles, helps, labels, groups, and the reasons why a model cannot answer: none is only in English."""
    for one in QUESTIONS.values():
        sent = one.to_dict()
        chinese = chinese_of(sent)
        assert {"title", "help", "group_title"} <= set(chinese)
        assert chinese["title"].endswith("？") and chinese["help"].endswith(("。", "？"))
        for n, param in enumerate(one.params):
            assert {"label", "help"} <= set(chinese["params"][str(n)]), param.name
    unfit = [q.fits(model(*key)) for key in MODELS for q in QUESTIONS.values()]
    assert all(isinstance(reason, Message) and reason.chinese != reason for reason in unfit if reason is not None)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("logit-lens", "hidden-states"),
        ("activation_patching", "patching"),
        ("KV cache", "cache"),
        ("beam-search", "beams"),
        ("attribution", "saliency"),
        ("CKA", "similarity"),
    ],
)
def test_a_question_is_found_by_the_field_s_name_too(words, name):
    with pytest.raises(InputError, match=f"Did you mean {name}"):
        question(words)
