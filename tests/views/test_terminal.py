"""Findings in the terminal: their numbers are there, they fit its width, and nothing moves its cursor."""

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from clearhead.explain.ablation import ablation
from clearhead.explain.alignment_steps import alignment_steps
from clearhead.explain.attention import attention
from clearhead.explain.attention_steps import attention_steps
from clearhead.explain.beams import beams
from clearhead.explain.caching import caching
from clearhead.explain.echo import echo
from clearhead.explain.factors import factors
from clearhead.explain.gates import gates
from clearhead.explain.hidden_states import hidden_states
from clearhead.explain.neuron_probe import neuron_probe
from clearhead.explain.neurons import neurons, top_tokens
from clearhead.explain.next_token import next_token
from clearhead.explain.parameters import parameters
from clearhead.explain.patching import patching
from clearhead.explain.positions import positions
from clearhead.explain.prediction import LabelScore, PredictedAnswer, Prediction, prediction
from clearhead.explain.query_key import query_key
from clearhead.explain.saliency import saliency
from clearhead.explain.sampling import sampling
from clearhead.explain.similarity import similarity
from clearhead.explain.walk import walk
from clearhead.views.page import compact, page
from clearhead.views.terminal import drawn, text_of
from clearhead.views.terminal.attention import telling_head
from clearhead.views.terminal.elements import shade
from tests.explain.library import of_library
from tests.explain.test_length_curve import curves
from tests.tiny import TEXT, tiny_pipeline
from tests.views.test_page import of_words

CHANGED = TEXT.replace("cat sat", "dog sat")


@pytest.fixture(scope="module")
def pipe():
    return tiny_pipeline("gpt2")


@pytest.fixture(scope="module")
def findings(pipe):
    found = [
        attention(pipe, TEXT), attention_steps(pipe, TEXT), query_key(pipe, TEXT), ablation(pipe, TEXT),
        saliency(pipe, TEXT, max_new_tokens=2),
        hidden_states(pipe, TEXT), hidden_states(pipe, TEXT, positions=-1, candidates=[" cat", " mat"]),
        next_token(pipe, TEXT), walk(pipe, TEXT), neurons(pipe, TEXT, top=6), top_tokens(pipe, [TEXT], 0, 1),
        neuron_probe(pipe, [TEXT, CHANGED]), neuron_probe(pipe, ['a "cat" sat', 'the "dog" ran'], "inside-quotes"),
        gates(tiny_pipeline("rnn"), TEXT), walk(tiny_pipeline("rnn", cell="gru"), TEXT),
        alignment_steps(tiny_pipeline("rnn-seq2seq"), TEXT, "a dog sat"), walk(tiny_pipeline("rnn-seq2seq"), TEXT),
        echo(tiny_pipeline("rnn"), TEXT), curves(),
        similarity(pipe, TEXT), similarity(pipe, TEXT, tiny_pipeline("bert")), patching(pipe, TEXT, CHANGED),
        patching(pipe, TEXT, CHANGED, tap="attention.heads"),
        patching(pipe, TEXT, CHANGED, layers=1, positions=[[1, 2], 3], answer=" cat"),
        beams(pipe, TEXT, 3, 4), beams(pipe, TEXT, 1, 4), positions(pipe, 12), parameters(pipe),
        sampling(pipe, TEXT, 0.7, 20, 0.9), caching(pipe, TEXT, 3),
        prediction(tiny_pipeline("bert"), TEXT.replace("mat", "[MASK]")),
        prediction(tiny_pipeline("bert", "token-classification"), TEXT), walk(tiny_pipeline("bart"), TEXT),
        positions(tiny_pipeline("t5"), 9), *of_words(), *of_library(),
    ]  # fmt: skip
    pytest.importorskip("sklearn")
    return [*found, factors(pipe, TEXT, n=2), neurons(pipe, TEXT, top=6, clusters=2)]


def printed(finding, width, colour=False):
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, color_system="truecolor" if colour else None
    )
    console.print(drawn(finding))
    return console.file.getvalue()


def test_every_finding_fits_and_says_its_model(findings):
    for finding in findings:
        for width in (60, 100):
            text = printed(finding, width)
            assert max(len(line) for line in text.splitlines()) <= width, finding.kind
            assert "no picture" not in text
            assert getattr(finding, "model", "tiny").split()[0] in text
        assert "\x1b[" in printed(finding, 100, colour=True)
        assert "\x1b" not in repr(finding)  # a test's output is no terminal


def test_every_finding_has_a_page(findings):
    for finding in findings:
        assert compact(finding)["kind"] == finding.kind
        assert f"clearhead/{finding.kind.replace('-', '_')}.js" in page(finding)


def test_encoder_decoders_too():
    both = tiny_pipeline("bart")
    cross = attention(both, TEXT, target="a dog sat")
    assert "looks at the columns" in " ".join(text_of(cross).split())
    assert "Logit lens: when does the answer appear?" in text_of(hidden_states(both, TEXT, target="a dog sat"))


def test_saliency_shows_the_shares(pipe):
    found = saliency(pipe, TEXT, max_new_tokens=1)
    best = int(np.nanargmax(found.scores[0]))
    assert f"{found.scores[0, best]:.0%}" in text_of(found)


def test_the_telling_head_is_not_one_that_looks_back_one_step(pipe):
    found = attention(pipe, TEXT)
    weights = np.zeros_like(found.weights)
    count = weights.shape[2]
    weights[:, :, np.arange(count), np.maximum(np.arange(count) - 1, 0)] = 1.0
    weights[1, 2] = 0.0
    weights[1, 2, :, 0] = 1.0
    weights[1, 2, 5] = 0.0
    weights[1, 2, 5, 2] = 1.0
    assert telling_head(dataclasses.replace(found, weights=weights)) == (1, 2)


def test_ink_grows():
    shades = [shade(share)[0] for share in (0.0, 0.05, 0.3, 0.5, 0.7, 1.0)]
    assert shades == [" ", "·", "░", "▒", "▓", "█"]
    assert shade(float("nan")) == "  "


def test_no_token_moves_the_cursor(pipe):
    found = next_token(pipe, TEXT, top_k=2)
    evil = dataclasses.replace(found.candidates[0], token="\x1b[2J\r\n")
    assert "\x1b" not in printed(dataclasses.replace(found, candidates=[evil]), 80)


def test_similarity_shows_its_numbers(pipe):
    found = similarity(pipe, TEXT, tiny_pipeline("bert"))
    text = text_of(found)
    assert (
        all(f"{value:.2f}" in text for value in found.values.ravel()) and f"give {found.shuffled_baseline:.2f}" in text
    )
    assert "tiny gpt2 and tiny bert" in text and "averaged" in text
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("3"))  # the last layer stands on top
    assert [line.split()[0] for line in lines[first : first + 4]] == ["3", "2", "1", "0"]
    assert lines[first + 4].split() == ["0", "1", "2", "3"]


def test_patching_shows_the_texts_and_the_effect(pipe):
    found = patching(pipe, TEXT, CHANGED, positions=[1, 5])
    text = text_of(found)
    assert all(f"{value:.2f}" in text for value in found.effect.ravel())
    assert f"{found.clean_score:.2f}" in text and "corrupted" in text
    assert "█" in printed(patching(pipe, TEXT, CHANGED), 60)  # too many columns for numbers: shades


def test_of_many_labels_the_likeliest_are_shown_as_they_are():
    choices = [LabelScore(f"[/b] label {n}", (12 - n) / 78, 0.0) for n in range(12)]
    text = printed(Prediction("small", "sequence-classification", [], [PredictedAnswer("label", None, choices)]), 80)
    assert "[/b] label 9" in text
    assert "label 10" not in text
    assert "2 more, 3.8% together" in text
