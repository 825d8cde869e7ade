"""Which layers learn, in which order, and how fast."""

import copy

import pytest
import torch
from torch import nn

from clearhead import models
from clearhead.errors import InputError
from clearhead.train.engine.freezing import Unfreezing, depths, discriminative, freeze
from clearhead.train.engine.optim import optimizer

TINY = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2}


def make(name, task=None, **more):
    family = models.family(name)
    return family.make(family.config(**TINY | more), task)


def classifier(name="bert"):
    return make(name, "sequence-classification", intermediate_size=12)


def level(model, part):
    found = {depth for name, depth in depths(model).items() if name.startswith(part)}
    assert len(found) == 1, part
    return found.pop()


def test_depths_of_a_stack():
    model = classifier()
    assert level(model, "head.") == 0
    assert [level(model, f"stack.layers.{n}.") for n in (2, 1, 0)] == [1, 2, 3]
    assert level(model, "stack.embed.") == 4


def test_depths_of_an_encoder_and_a_decoder():
    model = make("t5", num_decoder_layers=2, intermediate_size=12, head_dim=4, tie_word_embeddings=False)
    assert level(model, "head.output") == 0
    assert [level(model, f"decoder.layers.{n}.") for n in (1, 0)] == [1, 2]
    assert level(model, "decoder.final_norm") == 1
    assert [level(model, f"encoder.layers.{n}.") for n in (2, 1, 0)] == [3, 4, 5]
    assert level(model, "encoder.final_norm") == 3
    assert level(model, "encoder.embed") == level(model, "encoder.position_bias") == 6
    assert level(model, "decoder.position_bias") == 6


def test_what_is_shared_belongs_to_the_lowest():
    model = make("gpt2")  # the output matrix is the token table, so there is no head to count
    assert level(model, "head.output.weight") == level(model, "stack.embed.positions") == 3
    assert level(model, "stack.layers.2.") == level(model, "stack.final_norm") == 0
    albert = make("albert", "sequence-classification", intermediate_size=12, embedding_size=4)
    assert (level(albert, "head."), level(albert, "stack.layers."), level(albert, "stack.embed.")) == (0, 1, 2)
    assert make("xlnet", intermediate_size=12).stack.query_embedding is not None
    assert level(make("xlnet", intermediate_size=12), "stack.query_embedding") == 4


def test_models_inside_another_module():
    """As ELECTRA's pair has them, or a sentence model with its own classifier: each is counted from its own top."""
    pair = nn.ModuleDict({"small": make("gpt2", num_hidden_layers=1), "large": classifier(), "top": nn.Linear(8, 2)})
    assert level(pair, "top.") == level(pair, "large.head.") == level(pair, "small.stack.layers.0") == 0
    assert level(pair, "large.stack.layers.2.") == 1
    assert set(depths(pair)) == {name for name, _ in pair.named_parameters()}


def test_discriminative_rates():
    model = classifier()
    rates = discriminative(model)
    assert rates["head.output.weight"] == 1
    assert rates["stack.layers.2.attention.query.weight"] == pytest.approx(1 / 2.6)
    assert rates["stack.layers.0.attention.query.bias"] == pytest.approx(2.6**-3)
    assert rates["stack.embed.tokens.weight"] == pytest.approx(2.6**-4)
    opt = optimizer(model, lr=0.1, lr_factors=rates)
    for group in opt.groups:
        for name, p in model.named_parameters():
            if any(p is q for q in group["params"]):
                assert group["base_lr"] == pytest.approx(0.1 * rates[name])
    with pytest.raises(InputError, match=r"not 2\.6"):
        discriminative(model, 2.6)


def test_layers_wake_up_from_the_top():
    model = classifier()
    opt = optimizer(model, lr=0.05, weight_decay=0.5)
    unfreezing = Unfreezing(model, every=2)
    assert [unfreezing.learning(step) for step in range(12)] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5]
    start = copy.deepcopy(model.state_dict())
    places = ["head.", "stack.layers.2.", "stack.layers.1.", "stack.layers.0.", "stack.embed."]
    model.train()
    for step in range(10):
        assert unfreezing.apply(step) == (step % 2 == 0)
        learning = places[: 1 + step // 2]
        ids = torch.randint(3, 30, (4, 7))
        model(input_ids=ids, labels=ids[:, 0] % 2).loss.backward()
        opt.step()
        opt.zero_grad()
        for name, p in model.named_parameters():
            awake = name.startswith(tuple(learning))
            assert p.requires_grad == awake
            if not awake:
                assert torch.equal(p, start[name]), name  # not moved, not decayed
                assert not any(key.startswith(f"{name}.") for key in opt.state_tensors())
    unmoved = [name for name, p in model.named_parameters() if torch.equal(p, start[name])]
    assert unmoved == []
    assert opt.state_numbers()["updates"]["head.output.weight"] == 10
    assert opt.state_numbers()["updates"]["stack.embed.tokens.weight"] == 2


def test_a_restored_run_unfreezes_where_it_was():
    def fresh():
        torch.manual_seed(3)
        model = classifier()
        return model, optimizer(model, "muon", lr=0.02, weight_decay=0.1), Unfreezing(model, every=2)

    def learn(model, opt, unfreezing, first, last):
        model.train()
        for step in range(first, last):
            torch.manual_seed(step)
            unfreezing.apply(step)
            ids = torch.randint(3, 30, (4, 7))
            model(input_ids=ids, labels=ids[:, 0] % 2).loss.backward()
            opt.step()
            opt.zero_grad()

    whole = fresh()
    learn(*whole, 0, 10)
    half = fresh()
    learn(*half, 0, 5)
    after = fresh()
    after[0].load_state_dict(half[0].state_dict())
    after[1].load_state(half[1].state_tensors(), half[1].state_numbers())
    learn(*after, 5, 10)
    for a, b in zip(whole[0].parameters(), after[0].parameters(), strict=True):
        assert torch.equal(a, b)


def learning(model):
    return {name for name, p in model.named_parameters() if p.requires_grad}


def test_freeze():
    model = classifier()
    freeze(model, "all-but-head")
    assert learning(model) == {name for name, _ in model.named_parameters() if name.startswith("head.")}
    same = classifier()
    freeze(same, "encoder")
    assert learning(same) == learning(model)

    model = classifier()
    everything = learning(model)
    freeze(model, "embeddings")
    assert everything - learning(model) == {name for name in everything if name.startswith("stack.embed.")}

    model = make(
        "bart", "seq2seq-lm", encoder_ffn_dim=12, decoder_ffn_dim=12, decoder_layers=2, decoder_attention_heads=2
    )
    freeze(model, "encoder")
    assert learning(model)
    assert not model.encoder.embed.tokens.weight.requires_grad  # an encoder with a moving table would not be frozen
    assert all(name.startswith("decoder.") for name in learning(model))


def test_mistakes_are_named():
    with pytest.raises(InputError, match="Did you mean embeddings"):
        freeze(classifier(), "embedding")
    with pytest.raises(InputError, match="nothing is left"):
        freeze(make("gpt2"), "all-but-head")
    with pytest.raises(InputError, match="at least 1"):
        Unfreezing(classifier(), every=0)
