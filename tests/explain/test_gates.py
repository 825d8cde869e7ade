"""Gates over time: the numbers of a trace, the units that change most, and reasons where there are none."""

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import echo, gates, walk
from clearhead.explain.questions import QUESTIONS
from clearhead.nn import trace
from clearhead.pipeline import load
from tests.studies import small
from tests.tiny import TEXT, tiny_pipeline

PARTS = {
    "lstm": ["input_gate", "forget_gate", "candidate", "output_gate", "cell", "hidden"],
    "gru": ["reset_gate", "update_gate", "candidate", "hidden"],
    "rnn": ["hidden"],
}


@pytest.mark.parametrize("cell", list(PARTS))
def test_every_part_is_what_the_layer_computed(cell):
    pipe = tiny_pipeline("rnn", cell=cell)
    found = gates(pipe, TEXT, layer=1, top=5)
    with torch.no_grad(), trace(pipe.model, "layers.1.*") as seen:
        pipe.model(**pipe.read(TEXT).inputs)
    assert [part.name for part in found.parts] == PARTS[cell]
    for part in found.parts:
        want = seen[f"layers.1.{part.name}"][0].numpy().T  # (units, words)
        np.testing.assert_allclose(part.values, want[part.units], rtol=1e-5)
        assert part.width == len(want) == 24 and len(part.units) == 5
        assert part.is_gate == part.name.endswith("_gate")
        np.testing.assert_allclose(part.mean, (want if part.is_gate else abs(want)).mean(0), rtol=1e-5)
    assert [token.text for token in found.tokens] == [unit.text for unit in pipe.read(TEXT).units]


def test_the_units_that_change_most_by_when_they_peak():
    pipe = tiny_pipeline("rnn")
    everything, few = (gates(pipe, TEXT, top=top).part("cell") for top in (None, 4))
    spread = dict(zip(everything.units, everything.values.std(1), strict=True))
    assert set(few.units) == set(sorted(spread, key=spread.get, reverse=True)[:4])
    peaks = np.abs(few.values).argmax(1)
    assert list(peaks) == sorted(peaks)


def test_both_directions():
    pipe = tiny_pipeline("rnn", "sequence-classification", bidirectional=True)
    found = gates(pipe, TEXT, direction="reverse", top=None)
    with torch.no_grad(), trace(pipe.model, "layers.0.reverse.hidden") as seen:
        pipe.model(**pipe.read(TEXT).inputs)
    order = found.part("hidden").units
    np.testing.assert_allclose(found.part("hidden").values, seen["layers.0.reverse.hidden"][0].numpy().T[order], 1e-5)
    assert found.direction == "reverse"
    with pytest.raises(InputError, match="one direction only"):
        gates(tiny_pipeline("rnn"), TEXT, direction="reverse")
    with pytest.raises(InputError, match="'forward' or 'reverse'"):
        gates(pipe, TEXT, direction="up")


def test_elmo_in_each_direction(tmp_path):
    """Its directions are stacks of their own, and its states are narrower than its cells."""
    pipe = load(small.elmo(tmp_path / "elmo"))
    for direction, name in (("forward", "forward"), ("reverse", "backward")):
        found = gates(pipe, TEXT, layer=1, direction=direction, top=None)
        with torch.no_grad(), trace(pipe.model, f"layers.1.{name}.*") as seen:
            pipe.model(**pipe.read(TEXT).inputs)
        assert [part.name for part in found.parts] == PARTS["lstm"]
        for part in found.parts:
            want = seen[f"layers.1.{name}.{part.name}"][0].numpy().T
            np.testing.assert_allclose(part.values, want[part.units], rtol=1e-5)
        assert found.tokens[0].text == "<S>" and found.part("hidden").width < found.part("cell").width
        kept = echo(pipe, TEXT, layer=0, direction=direction)
        assert np.allclose(np.diagonal(kept.echo), 1)
        read_before = np.tril(kept.change, -1) if direction == "forward" else np.triu(kept.change, 1)
        assert np.abs(read_before).max() < 1e-6


def test_a_walk_through_elmo(tmp_path):
    pipe = load(small.elmo(tmp_path / "elmo"))
    found = walk(pipe, TEXT, layer=1, position=3, numbers=12)
    with torch.no_grad(), trace(pipe.model, "layers.1.forward.*") as seen:
        pipe.model(**pipe.read(TEXT).inputs)
    steps = {step.tap: step for step in found.steps}
    word, state, gate = (vector.numbers for vector in steps["layers.1.forward.input_gate"].vectors)
    np.testing.assert_allclose(gate, 1 / (1 + np.exp(-np.add(word, state))), atol=2e-4)
    np.testing.assert_allclose(gate, seen["layers.1.forward.input_gate"][0, 3], atol=1e-4)
    assert "“sat”" in steps["embed.output"].explanation


def test_what_is_written_is_looked_at_too():
    pipe = tiny_pipeline("rnn")
    assert len(gates(pipe, TEXT, max_new_tokens=3).tokens) > len(gates(pipe, TEXT).tokens)


def test_reasons():
    with pytest.raises(InputError, match="no recurrent layers"):
        gates(tiny_pipeline("gpt2"), TEXT)
    pipe = tiny_pipeline("rnn")
    with pytest.raises(InputError, match="no layer 3: there are 3 layers"):
        gates(pipe, TEXT, layer=3)
    with pytest.raises(InputError, match=r"no 'memory'; it has input_gate, .*hidden"):
        gates(pipe, TEXT).part("memory")
    for name in ("attention", "query-key", "attention-steps", "ablation", "cache"):
        reason = QUESTIONS[name].fits(pipe)
        assert reason is not None and reason.endswith(".") and reason.chinese.endswith("。"), name


# ---- the walk through a recurrent layer


def numbers(step, label):
    return np.array(next(vector.numbers for vector in step.vectors if label in vector.label))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def close(a, b):
    np.testing.assert_allclose(a, b, atol=2e-4)  # numbers are shown with four places


def test_a_walk_through_an_lstm_follows_its_formulas():
    found = walk(tiny_pipeline("rnn"), TEXT, layer=1, position=3, numbers=99)
    steps = {step.title: step for step in found.steps}
    gate = {}
    for title, squash in (
        ("Input gate", sigmoid),
        ("Forget gate", sigmoid),
        ("Candidate", np.tanh),
        ("Output gate", sigmoid),
    ):
        step = steps[title]
        gate[title] = np.array(step.vectors[-1].numbers)
        close(gate[title], squash(numbers(step, "the word") + numbers(step, "the last state")))
    cell = steps["The new cell"]
    close(numbers(cell, "kept"), gate["Forget gate"] * numbers(steps["What it remembers"], "cell"))
    close(numbers(cell, "written"), gate["Input gate"] * gate["Candidate"])
    close(numbers(cell, "remembered"), numbers(cell, "kept") + numbers(cell, "written"))
    close(numbers(steps["The new state"], "is said"), gate["Output gate"] * np.tanh(numbers(cell, "remembered")))
    assert found.heads == 0 and steps["The next token"].guesses
    first = walk(tiny_pipeline("rnn"), TEXT, position=0)
    assert "begins with zeros" in next(step for step in first.steps if "remembers" in step.title).explanation


def test_a_walk_through_a_gru_follows_its_formulas():
    found = walk(tiny_pipeline("rnn", cell="gru"), TEXT, layer=2, position=-1, numbers=99)
    steps = {step.title: step for step in found.steps}
    for title in ("Reset gate", "Update gate"):
        step = steps[title]
        close(step.vectors[-1].numbers, sigmoid(numbers(step, "the word") + numbers(step, "the last state")))
    candidate, new = steps["Candidate"], steps["The new state"]
    close(candidate.vectors[-1].numbers, np.tanh(numbers(candidate, "the word") + numbers(candidate, "reset gate")))
    update = np.array(steps["Update gate"].vectors[-1].numbers)
    close(numbers(new, "written"), (1 - update) * np.array(candidate.vectors[-1].numbers))
    close(numbers(new, "kept"), update * numbers(steps["What it remembers"], "hidden state"))
    close(numbers(new, "is said"), numbers(new, "kept") + numbers(new, "written"))


def test_a_walk_through_a_plain_rnn():
    found = walk(tiny_pipeline("rnn", cell="rnn"), TEXT, numbers=99)
    new = next(step for step in found.steps if step.title == "The new state")
    close(new.vectors[-1].numbers, np.tanh(numbers(new, "the word") + numbers(new, "the last state")))


# ---- echoes


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_an_echo_is_how_far_the_state_moves(direction):
    pipe = tiny_pipeline("rnn", "sequence-classification", bidirectional=True)
    found = echo(pipe, TEXT, layer=0, direction=direction)
    ids = pipe.read(TEXT).inputs["input_ids"]
    table = pipe.model.stack.embed.tokens
    name = f"layers.0.{'reverse.' if direction == 'reverse' else ''}hidden"
    blank = table.weight[pipe.tokenizer.mask_token_id].detach()
    states = []
    with torch.no_grad():
        for gone in (None, 2):
            vectors = table(ids)
            if gone is not None:
                vectors[0, gone] = blank
            with trace(pipe.model, name) as seen:
                pipe.model(inputs_embeds=vectors)
            states.append(seen[name][0])
    want = (states[1] - states[0]).norm(dim=-1).numpy()
    np.testing.assert_allclose(found.change[2], want, atol=1e-5)
    np.testing.assert_allclose(found.echo[2], want / want[2], atol=1e-4)
    before = found.change[2, 3:] if direction == "reverse" else found.change[2, :2]
    assert not before.any()  # it has not been read yet
    assert found.left[2] == found.echo[2, 0 if direction == "reverse" else -1]


def test_a_word_that_says_nothing_has_no_echo():
    pipe = tiny_pipeline("rnn", "sequence-classification")
    found = echo(pipe, TEXT.replace("mat", "[MASK]"))
    place = next(n for n, token in enumerate(found.tokens) if token.text == "[MASK]")
    assert np.isnan(found.echo[place]).all() and not found.change[place].any()
    with pytest.raises(InputError, match="no recurrent layers"):
        echo(tiny_pipeline("gpt2"), TEXT)
