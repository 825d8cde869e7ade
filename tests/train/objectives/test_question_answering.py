"""Spans of answers: windows, positions, SQuAD's normalisation and figures, and the best span over windows."""

import copy

import pytest
import torch

from clearhead.errors import InputError
from clearhead.models import Output
from clearhead.pipeline import TextPipeline
from clearhead.pipeline.answer import passage_windows
from clearhead.train.objectives.question_answering import QuestionAnswering, normalised, overlap_f1
from tests.train.objectives.small import bpe, encoded, learns, small, wordpiece

CONTEXT = "the cat sat on the mat . a dog ran away from angela merkel in berlin . the red house is old ."
QUESTION = "who ran ?"


def record(answer, **more):
    answers = (
        {"text": [answer], "answer_start": [CONTEXT.index(answer)]} if answer else {"text": [], "answer_start": []}
    )
    return {"question": QUESTION, "context": CONTEXT, "answers": answers, "where": "squad.json:5", **more}


@pytest.mark.parametrize("tokenizer", [wordpiece, bpe])
@pytest.mark.parametrize("answer", ["a dog", "angela merkel", "berlin", "the cat", "."])
def test_positions_of_the_answer(tokenizer, answer):
    tok = tokenizer()
    (example,) = QuestionAnswering(tok, 100).encode(record(answer))
    chosen = example["input_ids"][example["start"] : example["end"] + 1]
    assert tok.decode(chosen).strip() == answer
    before = tok.encode(QUESTION, CONTEXT[: CONTEXT.index(answer)].rstrip(), add_special_tokens=tokenizer is wordpiece)
    assert example["start"] == len(before) - (tokenizer is wordpiece)  # the first "." and not another


def test_no_answer_points_at_cls():
    (example,) = QuestionAnswering(wordpiece(), 100).encode(record(""))
    assert (example["start"], example["end"]) == (0, 0)
    assert example["input_ids"][0] == wordpiece().cls_token_id


def test_windows_overlap_and_point_at_cls_without_the_answer():
    tok = wordpiece()
    question, context = (tok.encode(text, add_special_tokens=False) for text in (QUESTION, CONTEXT))
    room, step = 10, 4
    objective = QuestionAnswering(tok, len(question) + 3 + room, doc_stride=step)
    examples = encoded(objective, [record("angela merkel")])
    start = len(question) + 2
    windows = [e["input_ids"][start:-1].tolist() for e in examples]
    assert windows[0] == context[:room] and windows[1] == context[step : step + room]  # moved by the stride
    assert windows[-1][-1] == context[-1]  # up to the end
    wanted = tok.encode("angela merkel", add_special_tokens=False)
    held = 0
    for example, window in zip(examples, windows, strict=True):
        holds = any(window[n : n + len(wanted)] == wanted for n in range(len(window)))
        held += holds
        if holds:
            assert example["input_ids"][example["start"] : example["end"] + 1].tolist() == wanted
        else:
            assert (example["start"], example["end"]) == (0, 0)
    assert 1 < held < len(windows)  # several windows have it, and some do not
    assert example["token_type_ids"].tolist() == [0] * start + [1] * (len(example["input_ids"]) - start)


def test_the_stride_is_never_longer_than_a_window():
    tok = wordpiece()
    objective = QuestionAnswering(tok, 20)  # doc_stride 128
    examples = encoded(objective, [record("berlin")])
    read = {n for e in examples for n in e["input_ids"].tolist()}
    assert read >= set(tok.encode(CONTEXT))
    assert any(e["start"] for e in examples)


def test_long_questions_are_cut():
    tok = wordpiece()
    objective = QuestionAnswering(tok, 100, question_length=3)
    (example,) = objective.encode({**record("berlin"), "question": "who wrote the book about the sea ?"})
    assert example["input_ids"][:5].tolist() == tok.encode("who wrote the")
    assert tok.decode(example["input_ids"][example["start"] : example["end"] + 1]) == "berlin"
    with pytest.raises(InputError, match=r"squad\.json:5: the question takes .* no room"):
        list(QuestionAnswering(tok, 6).encode(record("berlin")))
    with pytest.raises(InputError, match="at least 1"):
        QuestionAnswering(tok, 20, doc_stride=0)


def test_simple_columns_and_starts_that_are_off():
    objective = QuestionAnswering(wordpiece(), 100)
    plain = {"question": QUESTION, "context": CONTEXT, "where": "x.csv:2"}
    (first,) = objective.encode(record("the red house"))
    for given in ({"answer_start": CONTEXT.index("the red")}, {}, {"answer_start": CONTEXT.index("the red") - 2}):
        (example,) = objective.encode({**plain, "answer": "the red house", **given})
        assert (example["start"], example["end"]) == (first["start"], first["end"])
    assert objective.answers({**plain, "answer": ".", "answer_start": 60})[0][1] == CONTEXT.index(
        ".", 50
    )  # the nearest
    for wrong, message in (
        ({"answer": "paris"}, "x.csv:2: the answer 'paris' does not stand in the context"),
        ({}, "x.csv:2 has no column 'answers'"),
        ({"answers": ["paris"]}, "x.csv:2: answers must look like"),
        ({"answers": {"text": "a dog"}}, "x.csv:2: answers must look like"),
        ({"answers": {"text": ["a dog"], "answer_start": 4}}, "x.csv:2: answers must look like"),
        ({"answers": {"text": 5}}, "x.csv:2: answers must look like"),
        ({"answers": {"text": ["a dog"], "answer_start": ["x"]}}, "x.csv:2: answer_start is 'x'"),
        ({"answer": "a dog", "answer_start": [4]}, r"x.csv:2: answer_start is \[4\]"),
        ({"answers": {"text": ["a dog"], "answer_start": [1, 2]}}, "x.csv:2: there are 1 answers but 2"),
        ({"answer": "a dog", "context": ""}, "x.csv:2: context is empty"),
    ):
        with pytest.raises(InputError, match=message):
            list(objective.encode({**plain, **wrong}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("The  Cat's, a hat.", "cats hat"), ("an Apple", "apple"), ("theatre", "theatre"), ("《红楼梦》。", "红楼梦")],
)
def test_normalisation(text, expected):
    assert normalised(text) == expected


@pytest.mark.parametrize(
    ("told", "gold", "f1"),
    [
        ("the old red house", "red house", 2 * 1.0 * (2 / 3) / (1 + 2 / 3)),
        ("cat", "dog", 0.0),
        ("", "", 1.0),
        ("cat", "", 0.0),
        ("a", "the", 1.0),  # nothing is left of both
        ("dog dog", "dog", 2 / 3),
        ("北京市", "北京", 0.8),  # characters: 2 of 3 and 2 of 2
        ("in 北京", "北京", 0.8),
    ],
)
def test_f1(told, gold, f1):
    assert overlap_f1(told, gold) == pytest.approx(f1)


class Scores(torch.nn.Module):
    """Scores that depend on the token alone."""

    reads_segments = False

    def __init__(self, start, end):
        super().__init__()
        self.start, self.end = start, end
        self.device = torch.device("cpu")

    def forward(self, input_ids, **rest):
        first, last = (torch.tensor([[table.get(n, 0.0) for n in row] for row in input_ids.tolist()]) for table in
                       (self.start, self.end))  # fmt: skip
        return Output(start_logits=first, end_logits=last)


class Pipe:
    def __init__(self, model):
        self.model = model


def test_best_span_over_windows():
    tok = wordpiece()
    word = tok.convert_tokens_to_ids
    model = Scores(
        {word("angela"): 5.0, word("[CLS]"): 1.0, word("who"): 99.0}, {word("merkel"): 5.0, word("cat"): 9.0}
    )
    for length in (100, 22):
        objective = QuestionAnswering(tok, length, doc_stride=4)
        # "cat" ends before "angela" begins, and "who" stands in the question
        assert objective.answer(Pipe(model), record("berlin")) == "angela merkel"
    short = QuestionAnswering(tok, 100, answer_length=1)
    assert short.answer(Pipe(model), record("berlin")) == "cat"

    told = objective.evaluate_test(Pipe(model), [record("angela merkel"), record("merkel"), record("berlin")])
    assert told["exact_match"] == pytest.approx(100 / 3)
    assert told["f1"] == pytest.approx(100 * (1 + 2 / 3 + 0) / 3)
    two = record("berlin", answers={"text": ["berlin", "Angela Merkel"], "answer_start": [0, 0]})
    with pytest.raises(InputError, match="does not stand"):
        objective.evaluate_test(Pipe(model), [two])
    with pytest.raises(InputError, match="no records"):
        objective.evaluate_test(Pipe(model), [])


def test_refusing_where_some_questions_have_no_answer():
    tok = wordpiece()
    word = tok.convert_tokens_to_ids
    objective = QuestionAnswering(tok, 100)
    unsure = Pipe(Scores({word("angela"): 1.0, word("[CLS]"): 3.0}, {word("merkel"): 1.0}))
    each_has_one = objective.evaluate_test(unsure, [record("angela merkel")])
    assert each_has_one["exact_match"] == 100  # no refusal
    told = objective.evaluate_test(unsure, [record("angela merkel"), record(""), record("")])
    assert told["exact_match"] == pytest.approx(200 / 3)


def test_where_padding_is_on_the_left_the_context_comes_first_as_when_it_is_used():
    tok = copy.copy(wordpiece())
    tok.padding_side = "left"
    (example,) = QuestionAnswering(tok, 100).encode(record("angela merkel"))
    assert example["input_ids"].tolist() == tok.encode(CONTEXT, QUESTION)
    assert tok.decode(example["input_ids"][example["start"] : example["end"] + 1]) == "angela merkel"
    reader = TextPipeline(small("bert", "question-answering", tok), tok)
    (window,) = passage_windows(reader, 0, QUESTION, CONTEXT, 384, 128)
    assert window.row["input_ids"] == example["input_ids"].tolist()
    assert [tok.decode(window.row["input_ids"][n]) for n in (0, 1)] == ["[CLS]", "the"] and window.context[1]


def test_that_no_answer_was_learned_is_kept_in_the_configuration():
    objective = QuestionAnswering(wordpiece(), 100)
    objective.learn_labels(iter([record("a dog"), record("berlin")]))
    assert "task_specific_params" not in objective.configure({})
    objective.learn_labels(iter([record("a dog"), record("")]))
    given = {"task_specific_params": {"summarization": {"num_beams": 4}}}
    kept = objective.configure(given)["task_specific_params"]
    assert kept == {"summarization": {"num_beams": 4}, "question-answering": {"handle_impossible_answer": True}}
    again = QuestionAnswering(wordpiece(), 100)
    again.learned_labels = objective.learned_labels  # a run that goes on without its data
    assert again.configure({})["task_specific_params"]


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_it_is_learned(name):
    tok = bpe() if name == "gpt2" else wordpiece()
    objective = QuestionAnswering(tok, 60, doc_stride=8)
    examples = encoded(objective, [record("angela merkel"), record("a dog", context=CONTEXT[:40])])
    model = small(name, objective.task, tok, **objective.configure({}))
    before, after = learns(objective, model, examples)
    assert after < before
    batch = objective.collate(examples)
    told = objective.report(objective.measure(model.eval(), batch))
    assert list(told) == ["loss", "exact_positions"]
    out = model(**objective.model_inputs(batch))
    right = sum(
        int(first[: len(e["input_ids"])].argmax()) == e["start"]
        and int(last[: len(e["input_ids"])].argmax()) == e["end"]
        for first, last, e in zip(out.start_logits, out.end_logits, examples, strict=True)
    )
    assert told["exact_positions"] == right / len(examples)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_loss_does_not_depend_on_padding(name):
    """An example counts the same alone and beside a longer one, so that a batch may be cut in any parts."""
    tok = bpe() if name == "gpt2" else wordpiece()
    objective = QuestionAnswering(tok, 60)
    examples = encoded(objective, [record("a dog", context=CONTEXT[:40]), record("berlin"), record("the cat")])
    assert len({len(e["input_ids"]) for e in examples}) > 1
    model = objective.training_module(small(name, objective.task, tok, **objective.configure({}))).eval()
    with torch.no_grad():
        alone = [objective.losses(model, objective.collate([e]))["loss"] for e in examples]
        together = objective.losses(model, objective.collate(examples))["loss"]
    torch.testing.assert_close(together, torch.stack(alone).mean(), rtol=1e-5, atol=1e-6)
    sums = objective.measure(model, objective.collate(examples))
    assert sums["loss"] == pytest.approx(float(sum(alone)), rel=1e-5)
