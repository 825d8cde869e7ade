"""What the cache saves: the counts are those of the products that a model really computes, in every kind of family."""

import contextlib

import pytest
import torch
from torch import nn

from clearhead.errors import InputError
from clearhead.explain import caching
from clearhead.explain.continuation import continued
from clearhead.nn.tracing import trace
from tests.tiny import TEXT, tiny_pipeline

FAMILIES = ["gpt2", "gpt3", "gpt_neo", "gptj", "openai-gpt", "ctrl", "transformer", "bart", "t5", "pegasus"]


@contextlib.contextmanager
def counted(model, path):
    """Counts what runs inside: rows through every matrix, and the pairs of tokens that are seen, from their weights."""
    total = [0]

    def product(module, given, out):
        total[0] += out.numel() // out.shape[-1] * module.in_features * module.out_features

    hooks = [part.register_forward_hook(product) for part in model.modules() if isinstance(part, nn.Linear)]
    names = [f"{path}layers.*.attention.weights"] + ([f"{path}layers.*.cross_attention.weights"] if path else [])
    with torch.no_grad(), trace(model, *names) as seen:
        yield total
    for hook in hooks:
        hook.remove()
    for name in seen:
        block = model.get_submodule(("decoder." if path else "stack.") + name.removeprefix(path).rsplit(".", 1)[0])
        total[0] += int((seen[name] > 0).sum()) * 2 * block.head_dim


@pytest.mark.parametrize("name", FAMILIES)
def test_the_counts_are_those_of_the_products_that_run(name):
    pipe = tiny_pipeline(name)
    found = caching(pipe, TEXT, 3)
    model, reading = pipe.model.eval(), continued(pipe, TEXT, max_new_tokens=3).reading
    both = bool(reading.target)
    path = "decoder." if both else ""
    cache = model.start_state(64)
    ids = reading.inputs["decoder_input_ids" if both else "input_ids"]
    more = {}
    if both:
        with torch.no_grad():
            more["encoder_outputs"] = model.encode(reading.inputs["input_ids"], None, None)
    ask = "decoder_input_ids" if both else "input_ids"
    for step in found.steps:
        new = ids[:, step.length - step.computed : step.length]
        with counted(model, path) as work:
            model(**{ask: new}, **more, past_key_values=cache, logits_to_keep=1)
        assert work[0] == step.macs
        with counted(model, path) as without:
            model(**{ask: ids[:, : step.length]}, **more, logits_to_keep=1)
        assert without[0] == step.macs_without_cache
    assert [step.length for step in found.steps] == list(range(found.prompt, len(found.tokens)))
    assert [step.token for step in found.steps] == found.tokens[found.prompt :]
    assert found.steps[0].macs == found.steps[0].macs_without_cache  # the prompt is read once either way
    assert all(step.computed == 1 and step.macs < step.macs_without_cache for step in found.steps[1:])
    assert 0 < found.saved < 1


def test_what_is_kept_is_what_the_cache_holds():
    pipe = tiny_pipeline("gpt2")
    step = caching(pipe, TEXT, 2).steps[-1]
    assert step.cached_values == 2 * 3 * 24 * step.length  # keys and values, layers, width
    windowed = caching(tiny_pipeline("gpt_neo"), TEXT, 2).steps[-1]  # layer 1 of 3 sees 4 tokens
    assert windowed.cached_values == 2 * 24 * (2 * windowed.length + 4)
    assert windowed.attended == windowed.length
    both = caching(tiny_pipeline("bart"), TEXT, 2)
    assert both.steps[-1].cached_values == 2 * 2 * 24 * (both.steps[-1].length + len(both.source))


def test_what_has_no_cache_says_so():
    with pytest.raises(InputError, match="does not write"):
        caching(tiny_pipeline("bert"), TEXT)
    with pytest.raises(InputError, match="memory of earlier states"):
        caching(tiny_pipeline("transfo-xl"), TEXT)
    with pytest.raises(InputError, match="nothing is written"):
        caching(tiny_pipeline("gpt2"), TEXT, 0)


def test_it_is_said_in_the_terminal_and_in_a_table():
    found = caching(tiny_pipeline("gpt2"), TEXT, 3)
    text = repr(found)
    assert f"{found.saved:.0%}" in text and "computed" in text
    assert max(map(len, text.splitlines())) <= 160
    assert found.to_csv().count("\n") == 4
