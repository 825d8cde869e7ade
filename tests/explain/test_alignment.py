"""Attention over a recurrent encoder's states: weights, steps and the walk are the model's own numbers."""

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import alignment_steps, attention, gates, hidden_states, saliency, walk
from clearhead.nn import trace
from tests.tiny import TEXT, tiny_pipeline

TARGET = "a dog sat"
KINDS = {
    "additive": {"attention": "additive"},
    "general": {"attention": "general", "cell": "gru", "input_feeding": True},
    "dot": {"attention": "dot"},
    "concat": {"attention": "concat", "input_feeding": True},
    "local": {"attention": "general", "attention_window": 3},
}


@pytest.fixture(scope="module", params=list(KINDS))
def pipe(request):
    return tiny_pipeline("rnn-seq2seq", **KINDS[request.param])


def test_an_alignment_is_what_the_decoder_weighed(pipe):
    found = attention(pipe, TEXT, target=TARGET)
    reading = pipe.read(TEXT, target=TARGET)
    with torch.no_grad(), trace(pipe.model, "decoder.attention.weights") as seen:
        pipe.model(**reading.inputs)
    np.testing.assert_allclose(found.weights[0, 0], seen["decoder.attention.weights"][0].numpy(), rtol=1e-5)
    assert found.weights.shape == (1, 1, len(reading.target), len(reading.units)) and found.side == "cross"
    assert [row.text for row in found.tokens][:-1] == ["a", "dog", "sat"]  # named by what is written
    assert [row.read for row in found.tokens][1:] == ["a", "dog", "sat"]
    words = attention(pipe, TEXT, target=TARGET, words=True)
    assert len(words.summaries) == 1 and 0 <= words.summaries[0].alignment <= 1


def test_every_step_follows_its_formula(pipe):
    found = alignment_steps(pipe, TEXT, TARGET, top_k=3)
    decoder = pipe.model.decoder
    keys = decoder.attention.key
    states, memory = torch.tensor(found.states), torch.tensor(found.memory)
    with torch.no_grad():
        against = memory if keys is None else keys(memory)
        if decoder.attention.query is None:
            scores = states @ against.T
        else:
            both = decoder.attention.query(states)[:, None] + against[None]
            scores = decoder.attention.vector(both.tanh())[..., 0]
        logits = pipe.model(**pipe.read(TEXT, target=TARGET).inputs).logits[0]
    near(found.scores, scores)
    if decoder.attention.window is None:
        near(found.weights, scores.softmax(-1))
    near(found.context, found.weights @ found.memory)
    both = torch.cat([torch.tensor(found.context), torch.tensor(found.outputs)], -1)
    near(found.readout, decoder.readout.dense(both).tanh().detach())
    best = logits.softmax(-1).topk(3).values
    near([[chance for _, chance in words] for words in found.words], best)
    assert found.before == (found.score == "additive")
    if not found.before:
        near(found.states, found.outputs)
    else:  # the state before a step is that after the last one
        near(found.states[1:], found.outputs[:-1])


def test_a_walk_looks_where_the_decoder_looked(pipe):
    found = walk(pipe, TEXT, target=TARGET, layer=0, position=2, numbers=99)
    steps = {step.title: step for step in found.steps}
    whole = alignment_steps(pipe, TEXT, TARGET, top_k=10)
    look = steps["Look at the encoder's states"]
    near(look.columns[0].numbers, whole.scores[2], 1e-4)
    near(look.columns[1].numbers, whole.weights[2], 1e-4)
    assert look.tokens == [unit.text for unit in whole.keys]
    near(steps["Context"].vectors[0].numbers, whole.context[2], 1e-4)
    near(steps["State and context together"].vectors[-1].numbers, whole.readout[2], 1e-4)
    guesses = steps["The next token"].guesses
    assert [word for word, _ in guesses] == [word for word, _ in whole.words[2]]
    near([chance for _, chance in guesses], [chance for _, chance in whole.words[2]])
    titles = [step.title for step in found.steps]
    assert (titles.index("Look at the encoder's states") < titles.index("What it remembers")) == whole.before


def test_the_last_row_of_the_lens_is_the_models_answer(pipe):
    found = hidden_states(pipe, TEXT, target=TARGET, top_k=1)
    with torch.no_grad():
        best = pipe.model(**pipe.read(TEXT, target=TARGET).inputs).logits[0].softmax(-1).amax(-1)
    near([row[0][1] for row in found.top[-1]], best)


@pytest.mark.parametrize("options", [{"attention": None}, {"attention": None, "feed_context": True}])
def test_without_attention_there_is_no_alignment(options):
    pipe = tiny_pipeline("rnn-seq2seq", **options)
    with pytest.raises(InputError, match="no attention"):
        attention(pipe, TEXT, target=TARGET)
    with pytest.raises(InputError, match="in the state it was handed"):
        alignment_steps(pipe, TEXT, TARGET)
    titles = [step.title for step in walk(pipe, TEXT, target=TARGET, position=0).steps]
    assert "Context" not in titles and "What it remembers" in titles
    assert gates(pipe, TEXT, side="encoder").side == "encoder"
    with pytest.raises(InputError, match="attention in its layers"):
        alignment_steps(tiny_pipeline("t5"), TEXT)


@pytest.mark.parametrize("options", [{"attention": None}, {"attention": "general"}, {"attention": "additive"}])
def test_what_the_words_add_explains_the_score(options):
    """Integrated gradients through two recurrent networks: what is left unexplained is small."""
    found = saliency(
        tiny_pipeline("rnn-seq2seq", **options), TEXT, target=TARGET, method="integrated-gradients", steps=24
    )
    assert np.abs(found.unexplained).max() < 2e-2
    np.testing.assert_allclose(np.nansum(found.scores, axis=1), 1, rtol=1e-5)
    assert found.source > 0 and np.isfinite(found.scores[:, : found.source]).all()


def near(a, b, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=tolerance)
