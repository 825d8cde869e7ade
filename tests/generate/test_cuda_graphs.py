"""Steps of a fixed shape, as a CUDA device records them: the same texts, whatever the prompt, and few recordings."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import clearhead as ch
from clearhead.errors import InputError
from clearhead.generate import GenerationRun, cuda_graphs, generate
from clearhead.generate.options import Options
from clearhead.models import family
from tests.generate.models import ids, model, padded, until_end
from tests.tiny import tiny_config

STATIC = ["gpt2", "openai-gpt", "gptj", "ctrl", "roberta"]
ROWS = [ids(1, n, n)[0].tolist() for n in (6, 3, 11)]


@torch.no_grad()
def fixed(ours, given, mask, **options):
    """What a CUDA device would do, here."""
    run = GenerationRun(ours, given, mask, Options.from_keywords(options).filled_in(ours.config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_graphs, "why_not_recordable", cuda_graphs.why_no_fixed_shapes)
        answer = run.finish()
    return answer if options.get("return_dict_in_generate") else answer.sequences


@pytest.mark.parametrize("name", STATIC)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"eos_token_id": []},
        {"top_k": 9, "temperature": 1.4, "seed": 3},
        {"top_p": 0.8, "min_p": 0.02, "num_return_sequences": 3, "seed": 8},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"repetition_penalty": 1.3, "num_return_sequences": 2, "seed": 8},
    ],
    ids=str,
)
def test_fixed_shapes_write_the_same(name, side, options):
    ours = model(name)
    given, mask = padded(ROWS, side, ours.config.pad_token_id)
    want = ours.generate(given, attention_mask=mask, max_new_tokens=20, **options)
    for _ in range(2):  # the second call finds what the first has left
        got = fixed(ours, given, mask, max_new_tokens=20, **options)
        assert got.shape == want.shape
        for a, b in zip(got.tolist(), want.tolist(), strict=True):
            assert a[: given.shape[1]] == b[: given.shape[1]]
            assert until_end(a[given.shape[1] :]) == until_end(b[given.shape[1] :])
        assert torch.equal(got, want)


def test_fixed_shapes_show_the_same():
    ours = model("gpt2")
    given, mask = padded(ROWS)
    options = {
        "max_new_tokens": 12, "return_dict_in_generate": True, "output_scores": True, "output_logits": True,
        "top_k": 6, "temperature": 1.5, "seed": 2,
    }  # fmt: skip
    want, got = generate(ours, given, mask, **options), fixed(ours, given, mask, **options)
    assert torch.equal(got.sequences, want.sequences) and got.finish_reason == want.finish_reason
    torch.testing.assert_close(got.log_probs, want.log_probs, rtol=1e-4, atol=1e-5)
    for a, b in zip((*got.scores, *got.logits), (*want.scores, *want.logits), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_hook_keeps_steps_from_being_recorded():
    ours = model("gpt2")
    assert cuda_graphs.why_no_fixed_shapes(ours) is None
    handle = ours.stack.layers[1].feedforward.register_forward_hook(lambda *_: None)
    assert "hook" in cuda_graphs.why_no_fixed_shapes(ours)
    handle.remove()
    handle = ours.stack.embed.register_forward_pre_hook(lambda *_: None)
    assert "hook" in cuda_graphs.why_no_fixed_shapes(ours)
    handle.remove()
    assert cuda_graphs.why_no_fixed_shapes(ours) is None


def test_a_prompt_that_fills_the_positions():
    """Rounded up, it would reach beyond them."""
    ours = model("gpt2", n_positions=37)
    for length in (33, 36, 37):
        given = ids(1, length, 1)
        want = ours.generate(given, max_new_tokens=9, eos_token_id=[])
        assert torch.equal(fixed(ours, given, None, max_new_tokens=9, eos_token_id=[]), want)


def test_two_texts_at_once_do_not_share_a_recording():
    ours = model("gpt2")
    for rules in ({}, {"suppress_tokens": [11]}):
        options = {"max_new_tokens": 8, "eos_token_id": [], **rules}
        want = [ours.generate(ids(1, 5, n), **options)[0, 5:].tolist() for n in (1, 2)]
        runs = []
        for n in (1, 2):
            options_ = Options(**options).filled_in(ours.config)
            run = GenerationRun(ours, ids(1, 5, n), None, options_)
            runs.append(run._replayed(None, lambda scores, written: scores.argmax(-1)))
        got: list[list[int]] = [[], []]
        for _ in range(8):
            for n in (0, 1):
                got[n].append(int(next(runs[n]).tokens[0]))
        assert got == want


def test_recordings_are_few_and_go_with_their_model():
    chosen = family("gpt2")
    ours = chosen.make(tiny_config("gpt2"))
    for rows in range(1, 8):
        fixed(ours, ids(rows, 4), None, max_new_tokens=3, eos_token_id=[])
    assert len(cuda_graphs._recordings[ours]) == cuda_graphs.MAX_RECORDINGS
    alive = weakref.ref(ours)
    del ours
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt_neo", "distances or windows"),
        ("gpt3", "distances or windows"),
        ("bart", "only a decoder alone"),
        ("t5", "only a decoder alone"),
        ("transfo-xl", "only a decoder alone"),
    ],
)
def test_who_cannot_take_steps_of_a_fixed_shape(name, says):
    assert says in cuda_graphs.why_no_fixed_shapes(model(name))
    with pytest.raises(InputError, match=r"cuda_graphs cannot be used: the model is on cpu"):
        model(name).generate(ids(1, 4), cuda_graphs=True)


def test_when_a_model_cannot_take_steps_of_a_fixed_shape():
    ours = model("gpt2", 9)
    assert cuda_graphs.why_no_fixed_shapes(ours) is None
    with ch.trace(ours, "layers.0.output"):
        assert "trace" in cuda_graphs.why_no_fixed_shapes(ours)
    ours.train()
    try:
        assert "training" in cuda_graphs.why_no_fixed_shapes(ours)
    finally:
        ours.eval()
    assert [cuda_graphs._round(n) for n in (1, 16, 17, 64, 65, 128, 129, 300)] == [16, 16, 32, 64, 128, 128, 256, 384]
