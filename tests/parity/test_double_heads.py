"""GPT's and GPT-2's two heads at once: every summary, given positions, the loss over words; and what is refused."""

from __future__ import annotations

import random

import pytest
import torch

from clearhead import hub
from clearhead.errors import ConfigError, InputError
from clearhead.models import family

from .families import FAMILIES
from .harness import close

NAMES = ("gpt2", "openai-gpt")


def pair(name, tmp_path, seed=0, **options):
    torch.manual_seed(seed)
    ref = FAMILIES[name]
    values = {**ref.draw(random.Random(seed), "multiple-choice"), **options}
    theirs = ref.build(ref.config_class(**values), "multiple-choice")
    ref.save(theirs, tmp_path / "model")
    ours = hub.load_model(tmp_path / "model")
    assert ours.task == "multiple-choice"
    return theirs, ours


def texts(model, batch=2, choices=3, time=7):
    return torch.randint(3, model.config.vocab_size, (batch, choices, time))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_words_choices_and_their_losses(name, seed, tmp_path):
    theirs, ours = pair(name, tmp_path, seed, tie_word_embeddings=seed != 1)
    ids = texts(ours)
    given = {
        "input_ids": ids,
        "mc_token_ids": torch.randint(0, 7, (2, 3)),
        "labels": torch.tensor([2, 0]),
        "lm_labels": ids.masked_fill(torch.rand(ids.shape) < 0.3, -100),
    }
    want, got = theirs(**given), ours(**given)
    close(got.logits, want.logits)
    close(got.lm_logits, want.lm_logits)
    assert got.logits.shape == (2, 3)
    assert got.lm_logits.shape == (2, 3, 7, ours.config.vocab_size)
    close(got.loss, want.loss)
    want.loss.backward()
    got.loss.backward()
    map_ = ours.family.checkpoint_map(ours.config, ours.task)
    grads = {name: p.grad for name, p in theirs.named_parameters()}
    for entry in map_.entries:
        mine = [ours.get_parameter(n).grad for n in entry.ours]
        for theirs_name, grad in zip(entry.theirs, entry.to_theirs(mine), strict=True):
            wanted = grads.get(map_.published_name(theirs_name, entry, True))
            if wanted is not None:
                close(grad, wanted, tolerance=2e-5)
    only_words = ours(input_ids=ids, lm_labels=given["lm_labels"]).loss
    only_choices = ours(input_ids=ids, mc_token_ids=given["mc_token_ids"], labels=given["labels"]).loss
    close(only_words + only_choices, got.loss)
    assert (ours.head.words.output.weight is ours.stack.embed.tokens.weight) == (seed != 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["cls_index", "last", "first", "mean"])
@pytest.mark.parametrize("activation", [None, "tanh", "silu"])
def test_every_summary(name, kind, activation, tmp_path):
    """The reference is asked about one choice at a time: with several, it takes a choice for a token."""
    theirs, ours = pair(name, tmp_path, summary_type=kind, summary_activation=activation)
    ids = texts(ours)
    with torch.no_grad():
        want = torch.stack([theirs(input_ids=ids[:, n]).logits for n in range(3)], 1)
        close(ours(ids).logits, want)


def test_positions_are_checked(tmp_path):
    _, ours = pair("gpt2", tmp_path)
    ids = texts(ours)
    for wrong in (torch.full((2, 3), 7), torch.full((2, 3), -1), torch.zeros(2, 2, dtype=torch.long)):
        with pytest.raises(InputError, match="mc_token_ids"):
            ours(ids, mc_token_ids=wrong)
    gpt2 = family("gpt2")
    small = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    first = gpt2.make(gpt2.config(**small, summary_type="first"), "multiple-choice")
    with pytest.raises(InputError, match="mc_token_ids"):
        first(torch.ones(1, 2, 3, dtype=torch.long), mc_token_ids=torch.zeros(1, 2, dtype=torch.long))
    words = gpt2.make(gpt2.config(**small))
    with pytest.raises(InputError, match="lm_labels"):
        words(torch.ones(1, 3, dtype=torch.long), lm_labels=torch.ones(1, 3, dtype=torch.long))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "wrong", [{"summary_type": "attn"}, {"summary_use_proj": False}, {"summary_proj_to_labels": False}]
)
def test_what_makes_no_score_is_refused(name, wrong):
    fam = family(name)
    config = fam.config(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, **wrong)
    fam.make(config, "causal-lm")  # the other tasks do not read these options
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        fam.make(config, "multiple-choice")


def test_the_choice_head_is_no_writer(tmp_path):
    _, ours = pair("gpt2", tmp_path)
    assert ours.language_head is None
    with pytest.raises(InputError, match="cannot write"):
        ours.generate(torch.ones(1, 3, dtype=torch.long), max_new_tokens=2)


def test_old_spellings(tmp_path):
    """Gains and biases as g and b, the choice head as `linear`."""
    from safetensors.torch import load_file, save_file

    _, ours = pair("openai-gpt", tmp_path)
    ids = texts(ours)
    file = tmp_path / "model" / "model.safetensors"
    old = {}
    for name, tensor in load_file(file).items():
        for now, before in (("ln_1.weight", "ln_1.g"), ("ln_2.weight", "ln_2.g"), ("ln_1.bias", "ln_1.b")):
            name = name.replace(now, before)
        name = name.replace("c_attn.weight", "c_attn.w").replace("head.summary.", "head.linear.")
        old[name] = tensor
    assert any(name.endswith(".g") for name in old) and "multiple_choice_head.linear.weight" in old
    old["transformer.h.0.attn.bias"] = torch.ones(1, 1, 4, 4)
    save_file(old, file)
    again = hub.load_model(tmp_path / "model")
    with torch.no_grad():
        assert torch.equal(again(ids).logits, ours(ids).logits)
