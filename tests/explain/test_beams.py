"""The tree of a search is the search: the same answers with the same scores as `generate`, and nothing hangs loose."""

import itertools

import pytest

from clearhead.errors import InputError
from clearhead.explain import beams
from tests.tiny import CAUSAL, ENCODER_DECODER, TEXT, tiny_pipeline


@pytest.mark.parametrize("name", CAUSAL + ENCODER_DECODER)
def test_the_answers_are_those_of_generate(name):
    pipe = tiny_pipeline(name)
    found = beams(pipe, TEXT, num_beams=3, max_new_tokens=6)
    wanted = pipe.write(TEXT, num_beams=3, max_new_tokens=6, num_return_sequences=3)
    assert [answer.token_ids for answer in found.answers] == [one.token_ids for one in wanted]
    assert [answer.score for answer in found.answers] == [one.score for one in wanted]
    for answer, one in zip(found.answers, wanted, strict=True):
        assert [found.nodes[n].log_prob for n in answer.nodes] == pytest.approx(one.log_probs, abs=1e-6)


@pytest.mark.parametrize(("penalty", "early"), [(0.0, True), (2.0, False), (-1.0, "never"), (1.0, True)])
def test_length_penalty_and_early_stopping(penalty, early):
    pipe = tiny_pipeline("bart")
    how = {"num_beams": 4, "max_new_tokens": 9, "length_penalty": penalty, "early_stopping": early}
    found = beams(pipe, TEXT, **how)
    wanted = pipe.write(TEXT, num_return_sequences=4, **how)
    assert [answer.token_ids for answer in found.answers] == [one.token_ids for one in wanted]
    assert [answer.score for answer in found.answers] == [one.score for one in wanted]
    for answer in found.answers:
        assert answer.score == pytest.approx(answer.total / len(answer.nodes) ** penalty, rel=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_the_tree_holds_together(name):
    found = beams(tiny_pipeline(name), TEXT, num_beams=3, max_new_tokens=6)
    for node in found.nodes:
        parent = found.nodes[node.parent] if node.parent >= 0 else None
        assert node.step == (parent.step + 1 if parent else 1)
        assert node.total == pytest.approx((parent.total if parent else 0.0) + node.log_prob, abs=1e-4)
        assert parent is None or parent.status == "live"
        assert (node.score is None) == (node.status != "finished")
    for step, group in itertools.groupby(found.nodes, key=lambda node: node.step):
        nodes = list(group)
        assert [node.total for node in nodes] == sorted((node.total for node in nodes), reverse=True)
        assert len(nodes) == 6  # two for every beam
        if step < found.steps:
            assert sum(node.status == "live" for node in nodes) == 3
    assert [node.rank for node in sorted(found.nodes, key=lambda n: n.rank or 99)][:3] == [1, 2, 3]
    assert found.to_csv().count("\n") == len(found.nodes) + 1


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_one_beam_is_greedy_decoding(name):
    pipe = tiny_pipeline(name)
    found = beams(pipe, TEXT, num_beams=1, max_new_tokens=5, beside=2)
    one = pipe.write(TEXT, num_beams=1, max_new_tokens=5)[0]
    assert [answer.token_ids for answer in found.answers] == [one.token_ids]
    assert [found.nodes[n].log_prob for n in found.answers[0].nodes] == pytest.approx(one.log_probs, abs=1e-6)
    for _, group in itertools.groupby(found.nodes, key=lambda node: node.step):
        taken, *others = group
        assert taken.status != "dropped"
        assert len(others) == 2
        assert all(other.status == "dropped" and other.log_prob <= taken.log_prob for other in others)


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(InputError, match="does not write"):
        beams(tiny_pipeline("bert"), TEXT)
    with pytest.raises(InputError, match="num_beams"):
        beams(tiny_pipeline("gpt2"), TEXT, num_beams=0)
    with pytest.raises(InputError, match="beside"):
        beams(tiny_pipeline("gpt2"), TEXT, num_beams=1, beside=-1)
