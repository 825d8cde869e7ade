"""What heads answer: the finding holds the model's own probabilities, whatever the task."""

import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import prediction
from tests.tiny import MASKED, TEXT, tiny_pipeline

MASKS = "the [MASK] sat on the [MASK]"
LABELS = {0: "bad", 1: "so-so", 2: "good"}


def probabilities(answer):
    return {choice.label: choice.probability for choice in answer.choices}


# A tokenizer of XLM gives no segments; this one does, and `fill` hands them on.
@pytest.mark.parametrize("name", [name for name in MASKED if name != "xlm"])
def test_hidden_words(name):
    pipe = tiny_pipeline(name)
    found = prediction(pipe, MASKS, top_k=3)
    wanted = pipe.fill(MASKS, top_k=3)
    assert [answer.kind for answer in found.answers] == ["word", "word"]
    for answer, guesses in zip(found.answers, wanted, strict=True):
        assert found.tokens[answer.position].id == pipe.tokenizer.mask_token_id
        assert [c.probability for c in answer.choices] == pytest.approx([g.probability for g in guesses], rel=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt2", "bart", "deberta-v2", "xlnet", "xlm", "awd-lstm", "rnn"])
def test_labels(name):
    pipe = tiny_pipeline(name, "sequence-classification", id2label=LABELS, kind="wordpiece")
    (answer,) = prediction(pipe, TEXT).answers
    assert (answer.kind, answer.position) == ("label", None)
    assert sum(probabilities(answer).values()) == pytest.approx(1.0)
    assert probabilities(answer).keys() == set(LABELS.values())
    assert [c.probability for c in answer.choices] == sorted(probabilities(answer).values(), reverse=True)
    scores = {c.label: c.score for c in answer.choices}
    both = torch.tensor([scores[label] for label in LABELS.values()]).softmax(-1)
    assert [probabilities(answer)[label] for label in LABELS.values()] == pytest.approx(both.tolist(), rel=1e-5)


def test_each_label_for_itself_and_a_number():
    many = tiny_pipeline("bert", "sequence-classification", id2label=LABELS, problem_type="multi_label_classification")
    (answer,) = prediction(many, TEXT).answers
    assert answer.kind == "labels"
    for choice in answer.choices:
        assert choice.probability == pytest.approx(float(torch.tensor(choice.score).sigmoid()))
    one = tiny_pipeline("bert", "sequence-classification", id2label={0: "how alike"})
    (answer,) = prediction(one, TEXT, "a dog sat").answers
    assert (answer.kind, answer.choices[0].probability) == ("number", None)
    assert prediction(one, TEXT).answers[0].choices[0].score != answer.choices[0].score  # the pair is read


def test_next_sentence():
    pipe = tiny_pipeline("bert", "next-sentence")
    (answer,) = prediction(pipe, "the cat sat", "the cat ran").answers
    assert probabilities(answer).keys() == {"follows", "does not follow"}
    encoded = pipe.tokenizer("the cat sat", "the cat ran", return_tensors="pt")
    with torch.no_grad():
        wanted = pipe.model(**encoded).logits[0].softmax(-1)
    assert probabilities(answer)["follows"] == pytest.approx(float(wanted[0]), rel=1e-5)
    with pytest.raises(InputError, match="two"):
        prediction(pipe, "the cat sat")


def test_pretraining_answers_both():
    pipe = tiny_pipeline("bert", "pretraining")
    found = prediction(pipe, "the [MASK] sat", "the cat ran")
    assert [answer.kind for answer in found.answers] == ["next-sentence", "word"]
    assert [answer.kind for answer in prediction(pipe, "the cat sat", "the cat ran").answers] == ["next-sentence"]
    with pytest.raises(InputError, match="hidden"):
        prediction(pipe, "the cat sat")


def test_a_label_for_every_token():
    pipe = tiny_pipeline("bert", "token-classification", id2label=LABELS)
    found = prediction(pipe, TEXT)
    assert [answer.position for answer in found.answers] == [n for n, t in enumerate(found.tokens) if not t.special]
    assert all(sum(probabilities(answer).values()) == pytest.approx(1.0) for answer in found.answers)


def test_replaced_tokens():
    pipe = tiny_pipeline("electra", "replaced-token")
    found = prediction(pipe, TEXT)
    assert {answer.kind for answer in found.answers} == {"replaced"}
    assert all(0 < answer.choices[0].probability < 1 for answer in found.answers)


def test_the_place_of_an_answer():
    pipe = tiny_pipeline("bert", "question-answering")
    found = prediction(pipe, "what sat", "the cat sat on the mat", top_k=4)
    (answer,) = found.answers
    assert found.tokens[answer.position].segment == 1
    assert answer.position <= answer.last
    assert [c.probability for c in answer.choices] == sorted((c.probability for c in answer.choices), reverse=True)
    with torch.no_grad():
        out = pipe.model(**pipe.tokenizer("what sat", "the cat sat on the mat", return_tensors="pt"))
    start, end = out.start_logits[0].softmax(-1), out.end_logits[0].softmax(-1)
    assert answer.choices[0].probability == pytest.approx(float(start[answer.position] * end[answer.last]), rel=1e-4)


def test_multiple_choice():
    pipe = tiny_pipeline("bert", "multiple-choice")
    found = prediction(pipe, "the cat", choices=["sat on the mat", "ran", "a dog sat"])
    assert sum(probabilities(found.answers[0]).values()) == pytest.approx(1.0)
    assert found.to_csv().count("\n") == 4
    with pytest.raises(InputError, match="choices"):
        prediction(pipe, "the cat")


@pytest.mark.parametrize(("name", "task"), [("gpt2", None), ("t5", None), ("bert", "features"), ("xlnet", None)])
def test_others_are_refused(name, task):
    with pytest.raises(InputError, match=r"next token|vectors and no answers"):
        prediction(tiny_pipeline(name, task), TEXT)
