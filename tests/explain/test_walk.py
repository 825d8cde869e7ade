"""The walk shows the model's own numbers: each step is recomputed here from weights and formula."""

import math

import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.explain import walk
from clearhead.models.bert import FAMILY as BERT
from clearhead.models.bert import BertConfig
from clearhead.nn import trace
from clearhead.pipeline import TextPipeline
from clearhead.text import train_tokenizer
from tests.tiny import TEXT as SHORT
from tests.tiny import tiny_pipeline

TEXT = "The robot said that it will obey"


@pytest.fixture(scope="module")
def gpt():
    return ch.load("random-gpt2")


def test_numbers_are_the_models_own(gpt):
    layer, head, position = 2, 1, 4
    found = walk(gpt, TEXT, layer=layer, head=head, position=position, numbers=64)
    steps = {step.title: step for step in found.steps}
    model = gpt.model
    ids = torch.tensor([gpt.tokenizer.encode(TEXT)])
    assert len(found.tokens) == ids.shape[1]

    with torch.no_grad():
        x = model.stack.embed.tokens(ids) + model.stack.embed.positions(torch.arange(ids.shape[1])[None])
        near(steps["Embedding"].vectors[-1].numbers, x[0, position])
        for n in range(layer):
            x = formula(model.stack.layers[n], x)
        block = model.stack.layers[layer]
        near(steps["The layers below"].vectors[0].numbers, x[0, position])
        q, k, v = (
            t.unflatten(-1, (4, 16))[0, :, head] for t in block.attention.qkv(block.attention_norm(x)).chunk(3, -1)
        )
        for vector, want in zip(steps["Query, key, value"].vectors, (q, k, v), strict=True):
            near(vector.numbers, want[position])
        scores = q[position] @ k.T / math.sqrt(16)
        columns = {c.label: c.numbers for c in steps["Score, scale, mask, softmax"].columns}
        near(columns["score"], scores)
        assert [n is None for n in columns["after the mask"]] == [j > position for j in range(ids.shape[1])]
        weights = scores[: position + 1].softmax(-1)
        near(columns["weight"][: position + 1], weights)
        assert columns["weight"][position + 1 :] == [0.0] * (ids.shape[1] - position - 1)
        near(steps["Weighted sum"].vectors[0].numbers, weights @ v[: position + 1])
        near(steps["Feed-forward"].vectors[-1].numbers, formula(block, x)[0, position])
        chances = model(ids).logits[0, position].softmax(-1)
    guesses = steps["The next token"].guesses
    assert len(guesses) == 10
    near([chance for _, chance in guesses], chances.topk(10).values)


@pytest.mark.parametrize("name", ["transformer", "t5", "bart", "bigbird_pegasus"])
def test_a_decoder_looks_at_what_the_encoder_read(name):
    pipe = tiny_pipeline(name)
    found = walk(pipe, SHORT, target="a dog sat", layer=1, head=2, position=-1, numbers=64)
    steps = {step.title: step for step in found.steps}
    reading = pipe.read(SHORT, target="a dog sat")
    at = "decoder.layers.1.cross_attention."
    with torch.no_grad(), trace(pipe.model, f"{at}*") as seen:
        logits = pipe.model(**reading.inputs).logits
    look = steps["Look at the source"]
    assert look.tokens == found.source == [token.text for token in reading.units]
    assert found.tokens == [token.text for token in reading.target]
    near(look.columns[-1].numbers, seen[f"{at}weights"][0, 2, -1])
    assert sum(look.columns[-1].numbers) == pytest.approx(1.0)
    near(look.vectors[0].numbers, seen[f"{at}query"][0, 2, -1])
    near(steps["Take from the source"].vectors[-1].numbers, seen[f"{at}output"][0, -1])
    near([chance for _, chance in steps["The next token"].guesses], logits[0, -1].softmax(-1).topk(10).values)
    assert found.to_csv().count("cross_attention.weights") == 8 + 2 * len(found.source)


def test_an_encoder_can_be_followed_too():
    pipe = tiny_pipeline("transformer")
    found = walk(pipe, SHORT, side="encoder", layer=0)
    titles = [step.title for step in found.steps]
    assert "Look at the source" not in titles
    assert "The next token" not in titles
    assert found.steps[0].tap == "encoder.embed.output"
    with pytest.raises(InputError, match="encoder or the decoder"):
        walk(pipe, SHORT, side="cross")
    with pytest.raises(InputError, match="one stack"):
        walk(tiny_pipeline("gpt2"), SHORT, side="decoder")


def formula(block, x):
    """A pre-norm layer, written out."""
    normed = block.attention_norm(x)
    q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in block.attention.qkv(normed).chunk(3, -1))
    scores = q @ k.transpose(-1, -2) / 4
    scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    x = x + block.attention.output((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
    hidden = torch.nn.functional.gelu(block.feedforward.up(block.feedforward_norm(x)), approximate="tanh")
    return x + block.feedforward.down(hidden)


def near(numbers, tensor):
    torch.testing.assert_close(torch.tensor(numbers), tensor[: len(numbers)].float(), rtol=1e-3, atol=1e-4)


def test_first_and_last_layer_leave_out_what_does_not_happen(gpt):
    titles = [step.title for step in walk(gpt, TEXT, layer=0).steps]
    assert "The layers below" not in titles
    titles = [step.title for step in walk(gpt, TEXT, layer=-1).steps]
    assert "The layers above" not in titles


def test_an_encoder_sees_both_ways():
    tokenizer = train_tokenizer(["the cat sat on the mat"] * 9, kind="wordpiece", vocab_size=60, show_progress=False)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    for task in ("masked-lm", "features"):
        found = walk(TextPipeline(BERT.make(config, task), tokenizer), "the cat [MASK]", position=1)
        columns = next(step.columns for step in found.steps if step.columns)
        assert None not in columns[1].numbers
        assert sum(columns[2].numbers) == pytest.approx(1, abs=1e-5)
        assert [v.label for v in found.steps[0].vectors] == ["token", "position", "segment", "what enters the stack"]
        assert bool(found.steps[-1].guesses) == (task == "masked-lm")


@pytest.mark.parametrize(
    ("options", "says"),
    [({"layer": 4}, "4 layers"), ({"head": -5}, "4 heads"), ({"position": 99}, "tokens"), ({"layer": -5}, "4 layers")],
)
def test_out_of_range(gpt, options, says):
    with pytest.raises(InputError, match=says):
        walk(gpt, TEXT, **options)


def test_empty_text(gpt):
    with pytest.raises(InputError, match="no text"):
        walk(gpt, "   ")


def test_as_plain_data(gpt):
    import json

    data = walk(gpt, TEXT).to_dict()
    assert json.loads(json.dumps(data))["steps"][0]["title"] == "Embedding"
