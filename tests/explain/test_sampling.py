"""Sampling shown is sampling done: the chances, the cuts and the draws are those of `generate`."""

import numpy as np
import pytest

from clearhead.errors import InputError
from clearhead.explain import sampling
from tests.tiny import CAUSAL, ENCODER_DECODER, TEXT, tiny_pipeline

HOW = {"temperature": 0.7, "top_k": 20, "top_p": 0.8}


def by_hand(found, temperature, top_k, top_p):
    """The chances after each filter, from the scores in the finding, in float64."""
    logits = np.concatenate([[c.logit for c in found.candidates], found.other_logits]).astype(np.float64) / temperature
    alive = np.ones(len(logits), dtype=bool)
    cuts = []
    for name, value in (("top_k", top_k), ("top_p", top_p)):
        p = np.where(alive, np.exp(logits - logits[0]), 0.0)
        p /= p.sum()
        kept = logits >= logits[min(value, len(logits)) - 1] if name == "top_k" else p.cumsum() - p < value
        cuts.append(p[alive & ~kept].sum())
        alive &= kept
    p = np.where(alive, np.exp(logits - logits[0]), 0.0)
    return p / p.sum(), cuts


@pytest.mark.parametrize("name", CAUSAL + ENCODER_DECODER)
def test_chances_and_draws_are_those_of_generate(name):
    pipe = tiny_pipeline(name)
    found = sampling(pipe, TEXT, **HOW, seed=5, draws=4, show=25)
    after, cuts = by_hand(found, **HOW)
    assert [stage.name for stage in found.stages] == ["temperature", "top_k", "top_p"]  # in this order
    assert [stage.removed_mass for stage in found.stages[1:]] == pytest.approx(cuts, abs=1e-5)
    assert found.remaining == (after > 0).sum()
    assert [c.after for c in found.candidates] == pytest.approx(after[: len(found.candidates)].tolist(), abs=1e-5)
    assert len(found.candidates) + len(found.other_logits) == pipe.model.config.vocab_size or name in ("bart", "marian")
    forced = getattr(pipe.model.config, "forced_bos_token_id", None) is not None
    for draw in found.draws:
        written = pipe.write(TEXT, **HOW, seed=draw.seed)[0]
        assert written.token_ids[forced] == draw.token_id


def test_one_setting_alone_and_none():
    pipe = tiny_pipeline("gpt2")
    plain = sampling(pipe, TEXT)
    assert [stage.name for stage in plain.stages] == ["temperature"]
    assert all(c.before == pytest.approx(c.after) for c in plain.candidates)
    total = sum(c.before for c in plain.candidates)
    assert total < 1.0 and total == pytest.approx(1.0 - _mass(plain), abs=1e-5)
    few = sampling(pipe, TEXT, temperature=None, top_k=3)
    assert (few.settings["temperature"], few.settings["top_k"], few.remaining) == (None, 3.0, 3)
    assert few.stages[0].removed_mass == pytest.approx(1 - sum(c.before for c in few.candidates[:3]), abs=1e-5)
    cold = sampling(pipe, TEXT, temperature=0.001)
    assert cold.candidates[0].after > 0.99
    assert {draw.token_id for draw in cold.draws} == {cold.candidates[0].token_id}


def _mass(found):
    logits = np.concatenate([[c.logit for c in found.candidates], found.other_logits]).astype(np.float64)
    p = np.exp(logits - logits.max())
    return p[len(found.candidates) :].sum() / p.sum()


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match="does not write"):
        sampling(tiny_pipeline("bert"), TEXT)
    with pytest.raises(InputError, match="temperature"):
        sampling(tiny_pipeline("gpt2"), TEXT, temperature=0.0)
    with pytest.raises(InputError, match="draws"):
        sampling(tiny_pipeline("gpt2"), TEXT, draws=0)


def test_it_can_be_saved():
    found = sampling(tiny_pipeline("gpt2"), TEXT, show=5)
    assert found.to_csv().count("\n") == 6
    assert len(found.to_dict()["other_logits"]) == len(found.other_logits)
