"""Every check of fidelity, over every family, task and several random configurations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead import hub
from clearhead.models.heads import Summary
from clearhead.nn import trace

from .families import FAMILIES
from .harness import (
    RESULTS,
    answers,
    case,
    close,
    compare_answers,
    compare_gradients,
    compare_layers,
    compare_outputs,
    compare_weights,
    inputs,
    labels,
    stored_names,
    until_end,
)

SEEDS = (0, 1, 2, 3)
CASES = [(name, task, seed) for name, ref in FAMILIES.items() for task in ref.classes for seed in SEEDS]
GENERATING = [case for case in CASES if case[1] in FAMILIES[case[0]].generates]
CACHING = [case for case in CASES if case[1] in ("causal-lm", "seq2seq-lm") and FAMILIES[case[0]].caches]
SHOWING_INSIDE = [case for case in CASES if FAMILIES[case[0]].shows_inside]


def for_each(cases):
    """The id is the same in every check: conftest.py of all tests keeps those of one case together."""
    ids = [f"{name} {task} {seed}".replace("-", "_") for name, task, seed in cases]
    return pytest.mark.parametrize(("name", "task", "seed"), cases, ids=ids)


every_case = for_each(CASES)


@every_case
@pytest.mark.parametrize("pad", [None, "right"])
def test_outputs(name, task, seed, pad):
    c = case(name, task, seed)
    if pad == "right":
        compare_answers(c, *answers(c))
    else:
        compare_outputs(c, inputs(c, pad=pad))


@every_case
def test_left_padding(name, task, seed):
    """With positions given where the reference takes them, as left padding needs."""
    c = case(name, task, seed)
    given = inputs(c, pad="left")
    if any(isinstance(module, Summary) and module.token == "first" for module in c.ours.modules()):
        given["attention_mask"][..., 0] = 1  # this head looks at the first position, which must be a real token
        given["input_ids"][..., 0] = 3
    elif c.ref.takes_positions:
        given["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    compare_outputs(c, given)


@for_each(SHOWING_INSIDE)
def test_hidden_states_and_attention_weights(name, task, seed):
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    with torch.no_grad():
        theirs = c.theirs(**given, output_hidden_states=True, output_attentions=True)
        ours = c.ours(**given, output_hidden_states=True, output_attentions=True)
        flat = {k: v.flatten(0, 1) if c.task == "multiple-choice" else v for k, v in given.items()}
    source = flat["attention_mask"].bool()
    if c.ours.is_encoder_decoder:
        target = torch.ones(ours.hidden_states[0].shape[:2], dtype=torch.bool)
        if c.task in ("sequence-classification", "question-answering"):
            target = source
        compare_layers(ours.encoder_hidden_states, theirs.encoder_hidden_states, source)
        compare_weights(ours.encoder_attentions, theirs.encoder_attentions, source)
        compare_layers(ours.hidden_states, theirs.decoder_hidden_states, target)
        compare_weights(ours.attentions, theirs.decoder_attentions, target)
        compare_weights(ours.cross_attentions, theirs.cross_attentions, target)
    else:
        assert len(ours.hidden_states) == len(c.ours.stack.layers) + 1
        compare_layers(ours.hidden_states, theirs.hidden_states, source)
        compare_weights(ours.attentions, theirs.attentions, source)
        if "encoder_hidden_states" in given:
            compare_weights(ours.cross_attentions, theirs.cross_attentions, source)


@every_case
def test_loss_and_gradients(name, task, seed):
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    wanted = labels(c, given)
    if not wanted:
        pytest.skip("features have no loss")
    c.theirs.zero_grad()
    c.ours.zero_grad()
    theirs, ours = c.theirs(**given, **wanted), c.ours(**given, **wanted)
    close(ours.loss, theirs.loss)
    theirs.loss.backward()
    ours.loss.backward()
    compare_gradients(c)


@every_case
def test_padded_batch_equals_one_by_one(name, task, seed):
    c = case(name, task, seed)
    given, _, together = answers(c)
    if task == "multiple-choice":
        pytest.skip("its rows are compared with each other")
    if any(isinstance(module, Summary) and module.token in ("final", "mean") for module in c.ours.modules()):
        pytest.skip("this head reads the last position, or all of them, padding or not")
    with torch.no_grad():
        for row in range(len(given["input_ids"])):
            length = int(given["attention_mask"][row].sum())
            alone = {
                k: v[row : row + 1, :length]
                if k in ("input_ids", "attention_mask", "token_type_ids", "langs")
                else v[row : row + 1]
                for k, v in given.items()
            }
            single = c.ours(**alone)
            for key in RESULTS & set(single.keys()):
                whole = together[key][row : row + 1]
                per_source = key != "pooler_output" and whole.ndim > 1 and whole.shape[1] == given["input_ids"].shape[1]
                close(single[key], whole[:, :length] if per_source and task != "seq2seq-lm" else whole)


@every_case
def test_explicit_path_equals_fast_path(name, task, seed):
    c = case(name, task, seed)
    given, _, fast = answers(c)
    with torch.no_grad(), trace(c.ours, "**.attention.weights") as seen:
        explicit = c.ours(**given)
    assert seen
    real = given["attention_mask"].bool()
    for key in RESULTS & set(fast.keys()):
        per_token = fast[key].shape[:2] == real.shape and task not in ("multiple-choice", "seq2seq-lm")
        close(explicit[key], fast[key], real if per_token and key != "pooler_output" else None)


@for_each(CACHING)
def test_cached_equals_uncached(name, task, seed):
    c = case(name, task, seed)
    given = inputs(c, pad=None)
    key = "decoder_input_ids" if task == "seq2seq-lm" else "input_ids"
    ids = given.pop(key)
    if key == "input_ids":
        given.pop("attention_mask")
    types = given.pop("token_type_ids", None)
    with torch.no_grad():
        whole = c.ours(**{key: ids}, **given, **({} if types is None else {"token_type_ids": types})).logits
        cut = ids.shape[1] // 2
        pieces, cache, at = [], None, 0
        for size in (cut, 1, 1, ids.shape[1] - cut - 2):
            extra = {} if types is None else {"token_type_ids": types[:, at : at + size]}
            out = c.ours(**{key: ids[:, at : at + size]}, **given, **extra, past_key_values=cache, use_cache=True)
            pieces.append(out.logits)
            cache, at = out.past_key_values, at + size
    close(torch.cat(pieces, 1), whole)


@every_case
def test_bf16_is_sane(name, task, seed):
    c = case(name, task, seed)
    given, _, full = answers(c)
    half = hub.load_model(c.folder, dtype="bfloat16")
    assert half.dtype == torch.bfloat16
    as_half = {k: v.bfloat16() if v.is_floating_point() else v for k, v in given.items()}
    with torch.no_grad():
        rough = half(**as_half)
    for key in RESULTS & set(full.keys()):
        assert rough[key].isfinite().all()
        drift = (rough[key].float() - full[key]).norm() / full[key].norm()
        assert drift < 0.15, (key, drift)


@every_case
def test_saved_here_opens_there_and_here(name, task, seed, tmp_path):
    c = case(name, task, seed)
    given, theirs, ours = answers(c)
    hub.save_model(c.ours, tmp_path / "saved")
    there = c.ref.open(tmp_path / "saved", task)
    again = hub.load_model(tmp_path / "saved")
    assert again.task == task
    with torch.no_grad():
        reopened, ours_again = there(**given), again(**given)
    for key in (RESULTS | {"prediction_logits", "seq_relationship_logits", "sop_logits"}) & set(theirs.keys()):
        if theirs[key] is not None:
            # the same numbers; in memory aligned differently, a sum may round differently
            close(reopened[key], theirs[key], tolerance=1e-6)
    for key in RESULTS & set(ours.keys()):
        close(ours_again[key], ours[key], tolerance=1e-6)
    for (n, a), (m, b) in zip(c.ours.named_parameters(), again.named_parameters(), strict=True):
        assert n == m
        assert torch.equal(a, b)
    assert again.config == c.ours.config
    # The names are the reference's, prefix and all. (It may store the other one of two tied tensors.)
    assert stored_names(tmp_path / "saved") <= stored_names(c.folder) | set(c.theirs.state_dict())


PROMPT = ("input_ids", "attention_mask")


@for_each(GENERATING)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"min_new_tokens": 6},
        {"num_beams": 3},
        {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.6},
        {"num_beams": 3, "early_stopping": True, "length_penalty": 2.0},
        {"num_beams": 2, "early_stopping": "never", "no_repeat_ngram_size": 2},
    ],
    ids=str,
)
def test_generated_tokens(name, task, seed, options):
    c = case(name, task, seed)
    pad = "right" if c.ours.is_encoder_decoder else "left"  # where the reference expects it
    if "no_repeat_ngram_size" in options and not c.ours.is_encoder_decoder:
        pad = None  # the reference counts padding as text that must not be repeated
    given = {key: value for key, value in inputs(c, time=6, pad=pad).items() if key in PROMPT}
    start = 1 if c.ours.is_encoder_decoder else 6
    more = {}
    if not c.ours.is_encoder_decoder and (first := c.ours.stack.embed.first_position):
        # The reference's `generate` forgets the offset that its own forward pass adds: give it the right positions.
        more["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0) + first
    theirs = c.theirs.generate(**given, **more, max_new_tokens=8, do_sample=False, **options)
    ours = c.ours.generate(**given, max_new_tokens=8, **options)
    assert len(ours) == len(theirs)
    for a, b in zip(ours.tolist(), theirs.tolist(), strict=True):
        assert until_end(c, a, start) == until_end(c, b, start)


@for_each(GENERATING)
def test_right_padded_prompts_continue_like_single_ones(name, task, seed):
    c = case(name, task, seed)
    if c.ours.is_encoder_decoder:
        pytest.skip("an encoder–decoder's prompt is its start token")
    given = inputs(c, time=7, pad="right")
    together = c.ours.generate(given["input_ids"], attention_mask=given["attention_mask"], max_new_tokens=6)
    for row, mask in enumerate(given["attention_mask"]):
        length = int(mask.sum())
        alone = c.ours.generate(given["input_ids"][row : row + 1, :length], max_new_tokens=6)
        assert until_end(c, together[row].tolist(), 7) == until_end(c, alone[0].tolist(), length)


@for_each([c for c in CASES if c[0] == "transformer"])
@pytest.mark.parametrize("beams", [1, 3])
def test_encoder_decoder_generation(name, task, seed, beams):
    """Greedy equals an argmax loop without a cache; every beam is at least as likely as the greedy answer."""
    c = case(name, task, seed)
    given = inputs(c, pad="right")
    source = {"input_ids": given["input_ids"], "attention_mask": given["attention_mask"]}
    written = torch.ones(len(given["input_ids"]), 1, dtype=torch.long)
    ours = c.ours.generate(**source, max_new_tokens=7, num_beams=beams, eos_token_id=[])
    if beams == 1:
        with torch.no_grad():
            for _ in range(7):
                step = c.theirs(**source, decoder_input_ids=written).logits[:, -1].argmax(-1)
                written = torch.cat([written, step[:, None]], 1)
        assert torch.equal(ours, written)
    else:
        greedy = c.ours.generate(**source, max_new_tokens=7, eos_token_id=[])

        def log_likelihood(ids: Tensor) -> Tensor:
            with torch.no_grad():
                logits = c.theirs(**source, decoder_input_ids=ids[:, :-1]).logits.log_softmax(-1)
            return logits.gather(-1, ids[:, 1:, None]).sum((1, 2))

        assert (log_likelihood(ours) >= log_likelihood(greedy) - 1e-4).all()
