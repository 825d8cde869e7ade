"""Answers against a brute-force search over every span, as transformers' question answering used to define them."""

import pytest
import torch

from clearhead.errors import InputError
from tests.tiny import tiny_pipeline

QUESTION = "the cat ran"
PASSAGE = "the dog sat on the sofa and the cat, unbelievably, ran on the mat"


def reader(name="bert", kind=None, **options):
    return tiny_pipeline(name, "question-answering", kind, **options)


def brute_force(pipe, question, passage, longest=15):
    """(score, first character, character after the last) of every span, and the score of no answer."""
    encoding = pipe.tokenizer(question, passage)
    types = {}
    if pipe.model.reads_segments:
        types = {"token_type_ids": torch.tensor([encoding["token_type_ids"]])}
    out = pipe.model(torch.tensor([encoding["input_ids"]]), **types)
    sides, words, offsets = encoding.sequence_ids(), encoding.word_ids(), encoding.offsets()
    count = len(sides)
    cls = encoding["input_ids"].index(pipe.tokenizer.cls_token_id)
    shared = torch.tensor([side == 1 or n == cls for n, side in enumerate(sides)])
    starts = out.start_logits[0].masked_fill(~shared, -1e4).softmax(-1).tolist()
    ends = out.end_logits[0].masked_fill(~shared, -1e4).softmax(-1).tolist()
    spans = {}
    for first in range(count):
        for last in range(first, min(first + longest, count)):
            if sides[first] == sides[last] == 1:
                begin = min(offsets[n][0] for n in range(count) if sides[n] == 1 and words[n] == words[first])
                end = max(offsets[n][1] for n in range(count) if sides[n] == 1 and words[n] == words[last])
                spans[begin, end] = max(starts[first] * ends[last], spans.get((begin, end), 0))
    return sorted(((score, *span) for span, score in spans.items()), reverse=True), starts[cls] * ends[cls]


@pytest.mark.parametrize(
    ("name", "kind", "longest"),
    [("bert", "wordpiece", 15), ("bert", "wordpiece", 2), ("roberta", "wordpiece", 15), ("electra", "wordpiece", 4)],
)
def test_the_best_spans_are_those_of_brute_force(name, kind, longest):
    pipe = reader(name, kind)
    expected, null = brute_force(pipe, QUESTION, PASSAGE, longest)
    found = pipe.answer(QUESTION, PASSAGE, top_k=5, max_answer_len=longest)
    assert [(x.start, x.end) for x in found] == [(first, last) for _, first, last in expected[:5]]
    assert [x.score for x in found] == pytest.approx([score for score, _, _ in expected[:5]], abs=1e-6)
    assert all(PASSAGE[x.start : x.end] == x.text for x in found)
    assert pipe.answer(QUESTION, PASSAGE, max_answer_len=longest) == found[0]
    every = pipe.answer(QUESTION, PASSAGE, top_k=500, max_answer_len=longest, handle_impossible_answer=True)
    assert next(x.score for x in every if x.text == "") == pytest.approx(null, abs=1e-6)


def test_windows_of_a_long_passage_find_what_each_finds_alone():
    pipe = reader(max_position_embeddings=32)
    passage = PASSAGE + ". " + "a dog sat on the mat and a cat ran to the sofa. " * 8
    best = pipe.answer(QUESTION, passage)
    assert passage[best.start : best.end] == best.text
    room = 32 - 3 - len(pipe.tokenizer.encode(QUESTION, add_special_tokens=False))
    pieces = pipe.tokenizer(passage, add_special_tokens=False).offsets()
    step, scores = room - room // 2, []
    for start in range(0, len(pieces) - room + step, step):
        part = pieces[start : start + room]
        scores.append(brute_force(pipe, QUESTION, passage[part[0][0] : part[-1][1]])[0][0][0])
        if start + room >= len(pieces):
            break
    assert best.score == pytest.approx(max(scores), abs=1e-5)


def test_several_passages_are_ranked_together_and_lists_pair_up():
    pipe = reader()
    passages = ["a dog", PASSAGE, "the mat and the sofa"]
    alone = [pipe.answer(QUESTION, passage) for passage in passages]
    best = max(range(3), key=lambda n: alone[n].score)
    found = pipe.answer(QUESTION, passages)
    assert (found.text, found.passage) == (alone[best].text, best)
    assert found.score == pytest.approx(alone[best].score, abs=1e-6)
    pairs = pipe.answer([QUESTION] * 3, passages)
    assert [(x.text, x.start, x.passage) for x in pairs] == [(x.text, x.start, 0) for x in alone]
    assert [len(row) for row in pipe.answer([QUESTION] * 3, passages, top_k=2)] == [2, 2, 2]
    assert pipe(QUESTION, PASSAGE) == pipe.answer(QUESTION, PASSAGE)


def test_no_answer_is_one_where_the_model_was_trained_for_it():
    pipe = reader()
    with torch.no_grad():  # [CLS] wins
        pipe.model.head.output.weight.zero_()
    hidden = pipe.model.output_stack(torch.tensor([pipe.tokenizer.encode(QUESTION, PASSAGE)]))[0]
    apart = torch.linalg.lstsq(hidden, 9.0 * (torch.arange(len(hidden)) == 0)[:, None].float()).solution
    with torch.no_grad():
        pipe.model.head.output.weight.copy_(apart.T.expand(2, -1))
    assert pipe.answer(QUESTION, PASSAGE).text != ""
    assert pipe.answer(QUESTION, PASSAGE, handle_impossible_answer=True).text == ""
    pipe.model.config.also_stored["task_specific_params"] = {"question-answering": {"handle_impossible_answer": True}}
    assert pipe.answer(QUESTION, PASSAGE).text == ""
    assert pipe.answer(QUESTION, PASSAGE, handle_impossible_answer=False).text != ""


def test_a_question_that_fills_the_window_is_cut(caplog):
    found = reader().answer("the cat " * 60, PASSAGE)
    assert found.text in PASSAGE
    assert "The question has 120 tokens" in caplog.text


@pytest.mark.parametrize(
    ("task", "arguments", "says"),
    [
        ("masked-lm", ("who", "a cat"), "loaded for masked-lm"),
        ("question-answering", ("", "a cat"), "empty"),
        ("question-answering", (["who", "what"], ["a cat"]), "as many passages"),
        ("question-answering", (["who"], "a cat"), "as many passages"),
    ],
)
def test_what_cannot_be_answered_says_why(task, arguments, says):
    with pytest.raises(InputError, match=says):
        tiny_pipeline("bert", task).answer(*arguments)
