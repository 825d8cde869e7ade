"""Neurons: the activations are the model's own, a planted neuron tops its list, and a corpus of any length fits."""

import json

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import neurons, top_tokens
from clearhead.nn.tracing import trace
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, TEXT, texts, tiny_pipeline

CORPUS = ["the cat sat", "a dog sat on the sofa", "the mat", "the cat ran and the cat sat", "don't", "a cat on a mat"]


def planted(token, layer=1, neuron=7):
    """A GPT-2 whose neuron (layer, neuron) fires at one token and nowhere else."""
    pipe = tiny_pipeline("gpt2")
    stack = pipe.model.stack
    width = pipe.model.config.hidden_size
    with torch.no_grad():
        for block in stack.layers:  # only embeddings reach the neuron: nothing else is written to the stream
            for part in (block.attention.output, block.feedforward.down):
                part.weight.zero_()
                part.bias.zero_()
            block.feedforward_norm.weight.fill_(1)
            block.feedforward_norm.bias.zero_()
        stack.embed.positions.weight.zero_()
        id_ = pipe.tokenizer.encode(token)[0]
        tokens = stack.embed.tokens.weight
        tokens[:, :2] = 0.0
        tokens[id_] = 0.0
        tokens[id_, 0], tokens[id_, 1] = 3.0, -3.0  # a direction that no other token has
        up = stack.layers[layer].feedforward.up
        up.weight[neuron] = 0.0
        up.weight[neuron, 0], up.weight[neuron, 1] = 5.0, -5.0
        up.bias[neuron] = -3.0
    assert width > 2
    return pipe


@pytest.mark.parametrize("name", [*CAUSAL, *MASKED, *ENCODER_DECODER])
def test_activations_are_the_models_own(name):
    pipe = tiny_pipeline(name)
    sides = ("encoder", "decoder") if name in ENCODER_DECODER else (None,)
    for side in sides:
        found = neurons(pipe, **texts(name), side=side, top=None)
        ids = torch.tensor([[token.id for token in found.tokens]])
        before = f"{side}." if side else ""
        with torch.no_grad(), trace(pipe.model, f"{before}layers.*.feedforward.hidden") as seen:
            if side:
                other = neurons(pipe, **texts(name), side="decoder" if side == "encoder" else "encoder")
                their = torch.tensor([[token.id for token in other.tokens]])
                source, target = (ids, their) if side == "encoder" else (their, ids)
                pipe.model(input_ids=source, decoder_input_ids=target)
            else:
                pipe.model(input_ids=ids)
        assert found.total == len(found.neurons) == sum(seen[n].shape[-1] for n in seen)
        assert found.layers == list(range(len(seen)))
        for (layer, index), row in zip(found.neurons, found.activations, strict=True):
            theirs = seen[f"{before}layers.{layer}.feedforward.hidden"][0, :, index]
            np.testing.assert_allclose(row, theirs, atol=1e-5, rtol=1e-4)
        strength = np.abs(found.activations).max(1)
        assert (np.diff(strength) <= 0).all()


def test_the_strongest_of_some_layers():
    pipe = tiny_pipeline("gpt2")
    whole = neurons(pipe, TEXT, [2, 0], top=None)
    assert whole.layers == [2, 0]
    assert {layer for layer, _ in whole.neurons} == {0, 2}
    few = neurons(pipe, TEXT, [2, 0], top=5)
    assert few.neurons == whole.neurons[:5]
    np.testing.assert_array_equal(few.activations, whole.activations[:5])
    assert few.total == len(whole.neurons)
    assert neurons(pipe, TEXT, -1).layers == [2]
    assert neurons(pipe, TEXT, range(2)).layers == [0, 1]


def test_what_is_written_counts_where_it_is_asked_for():
    gpt, t5 = tiny_pipeline("gpt2"), tiny_pipeline("t5")
    assert len(neurons(gpt, TEXT).tokens) == len(gpt.tokenizer.encode(TEXT))
    assert len(neurons(gpt, TEXT, max_new_tokens=4).tokens) == len(gpt.tokenizer.encode(TEXT)) + 4
    assert len(neurons(gpt, "the cat", target=" sat on").tokens) == len(gpt.tokenizer.encode("the cat sat on"))
    written = neurons(t5, "the cat", max_new_tokens=5)
    assert (written.side, len(written.tokens)) == ("decoder", 6)
    read_only = neurons(t5, "the cat", side="encoder")
    assert [t.id for t in read_only.tokens] == t5.tokenizer.encode("the cat")


def test_neurons_that_fire_together_are_a_cluster():
    pipe = tiny_pipeline("gpt2")
    found = neurons(pipe, TEXT, top=30, clusters=4)
    assert found.clusters == sorted(found.clusters)
    assert set(found.clusters) == {0, 1, 2, 3}
    assert neurons(pipe, TEXT, top=30, clusters=4).neurons == found.neurons
    strongest = neurons(pipe, TEXT, top=1).neurons[0]
    assert found.clusters[found.neurons.index(strongest)] == 0
    assert sorted(found.neurons) == sorted(neurons(pipe, TEXT, top=30).neurons)
    # two kinds of neurons by hand: those that fire at "cat", and those that fire everywhere
    pipe = planted(" cat")
    up = pipe.model.stack.layers[1].feedforward.up
    with torch.no_grad():
        cat, much = up.weight[7].clone(), torch.arange(up.out_features) / 9
        up.weight[0::2], up.bias[0::2] = cat * (1 + much[0::2, None]), -3.0
        up.weight[1::2], up.bias[1::2] = 0.0, 2.0 + much[1::2]
    found = neurons(pipe, TEXT, 1, top=None, clusters=2)
    kinds = {cluster: {index % 2 for (_, index), c in zip(found.neurons, found.clusters, strict=True) if c == cluster}
             for cluster in (0, 1)}  # fmt: skip
    assert all(len(kind) == 1 for kind in kinds.values())


def test_a_planted_neuron_tops_its_list():
    pipe = planted(" cat")
    found = top_tokens(pipe, CORPUS, 1, 7, top=4, around=2)
    assert [context.token.text for context in found.contexts] == [" cat"] * 4
    first = found.contexts[0]
    assert (first.text, first.position, first.at) == (0, 1, 1)
    assert [t.text for t in first.tokens] == ["the", " cat", " sat"]
    assert first.activations[1] == pytest.approx(first.activation)
    assert max(first.activations[0], first.activations[2]) < 0.1 < first.activation
    strongest = neurons(pipe, "the cat sat", 1, top=None)
    row = strongest.activations[strongest.neurons.index((1, 7))]
    assert int(row.argmax()) == 1
    assert found.firing_rate < 0.5
    assert top_tokens(pipe, CORPUS, 1, 6, top=1).contexts[0].activation != first.activation


@pytest.mark.parametrize("name", ["gpt2", "transfo-xl", "bert", "roberta", "xlm", "deberta", "big_bird", "t5", "bart"])
def test_batches_give_what_single_texts_give(name):
    pipe = tiny_pipeline(name)
    side = "encoder" if name in ENCODER_DECODER else None
    every = []
    for n, text in enumerate(CORPUS):
        ids = pipe.tokenizer.encode(text)
        tap = f"{side + '.' if side else ''}layers.1.feedforward.hidden"
        with torch.no_grad(), trace(pipe.model, tap) as seen:
            if side:
                pipe.model.encode(torch.tensor([ids]), None, None)
            else:
                pipe.model.stack(torch.tensor([ids]))
        every += [(float(v), n, p) for p, v in enumerate(seen[tap][0, :, 3])]
    best = sorted(every, key=lambda entry: -entry[0])[:6]
    for size in (1, 4, 100):
        found = top_tokens(pipe, iter(CORPUS), 1, 3, top=6, batch_size=size)
        np.testing.assert_allclose([c.activation for c in found.contexts], [b[0] for b in best], atol=1e-5)
        assert found.token_count == len(every)
        assert found.texts == len(CORPUS)
        assert found.mean == pytest.approx(np.mean([e[0] for e in every]), abs=1e-5)
        assert found.firing_rate == pytest.approx(np.mean([e[0] > 0 for e in every]))
    values = {(n, p): v for v, n, p in every}
    assert all(values[c.text, c.position] == pytest.approx(c.activation, abs=1e-5) for c in found.contexts)


def test_a_decoder_reads_pairs():
    pipe = tiny_pipeline("t5")
    found = top_tokens(pipe, [("the cat", "a dog"), ("a mat", "the cat sat")], 0, 2, top=3, side="decoder")
    whole = neurons(pipe, "a mat", 0, target="the cat sat", top=None)
    row = whole.activations[whole.neurons.index((0, 2))]
    assert any(c.text == 1 and c.activation == pytest.approx(row[c.position], abs=1e-5) for c in found.contexts)
    with pytest.raises(InputError, match="pair"):
        top_tokens(pipe, ["the cat"], 0, 2, side="decoder")


def test_a_stream_is_never_held_as_a_whole():
    pipe = tiny_pipeline("gpt2")
    given, held = 0, 0

    def corpus():
        nonlocal given
        for n in range(40):
            given = n + 1
            yield CORPUS[n % len(CORPUS)]

    lengths = []
    whole = type(pipe.model.stack).forward

    def forward(self, **inputs):
        nonlocal held
        lengths.append(given - held)
        held = given
        return whole(self, **inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(pipe.model.stack), "forward", forward)
        found = top_tokens(pipe, corpus(), 0, 0, top=2, batch_size=8)
    assert lengths == [8] * 5
    assert found.texts == 40
    assert len(found.contexts) == 2


def test_long_texts_are_cut_and_counted():
    pipe = tiny_pipeline("gpt2")
    found = top_tokens(pipe, ["the cat " * 60, "the cat"], 0, 0)
    assert found.truncated == 1
    assert found.token_count == 48 + 2


def test_as_plain_data():
    found = neurons(tiny_pipeline("gpt2"), TEXT, top=3, clusters=2)
    assert json.loads(json.dumps(found.to_dict()))["kind"] == "neurons"
    assert len(found.to_csv().splitlines()) == 1 + 3 * len(found.tokens)
    best = top_tokens(tiny_pipeline("gpt2"), CORPUS, 0, 1, top=3)
    assert json.loads(json.dumps(best.to_dict()))["contexts"][0]["activation"] == best.contexts[0].activation
    assert len(best.to_csv().splitlines()) == 4


def test_what_is_not_there():
    gpt = tiny_pipeline("gpt2")
    for wrong, words in (
        ({"layers": 3}, "no layer 3"),
        ({"top": 0}, "top is 0"),
        ({"clusters": 99, "top": 5}, "99 clusters"),
        ({"side": "encoder"}, "one stack"),
        ({"layers": []}, "empty"),
    ):
        with pytest.raises(InputError, match=words):
            neurons(gpt, TEXT, **wrong)
    for corpus, layer, neuron, more, words in (
        ("the cat", 0, 0, {}, "single string"),
        ([], 0, 0, {}, "no texts"),
        ([""], 0, 0, {}, "at least one word"),
        (CORPUS, 5, 0, {}, "no layer 5"),
        (CORPUS, 0, 99999, {}, "no neuron 99999"),
        (CORPUS, 0, 0, {"around": -1}, "around"),
        (CORPUS, 0, 0, {"batch_size": 0}, "batch_size"),
    ):
        with pytest.raises(InputError, match=words):
            top_tokens(gpt, corpus, layer, neuron, **more)
    with pytest.raises(InputError, match="side is 'both'"):
        neurons(tiny_pipeline("t5"), TEXT, side="both")
