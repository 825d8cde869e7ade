"""Where the parameters live: the parts sum to the whole in every family, and published sizes are the known ones."""

import dataclasses
import random

import pytest

from clearhead.errors import InputError
from clearhead.explain import parameters
from clearhead.models import families, family
from tests.parity.families import FAMILIES
from tests.tiny import tiny_pipeline


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_parts_sum_to_the_whole(name):
    reference = FAMILIES[name]
    for task in reference.classes:
        if task not in family(name).architectures:
            continue
        drawn = reference.config(random.Random(0), task)
        raw = drawn if isinstance(drawn, dict) else drawn.to_dict()
        known = family(name)
        config = known.config.from_dict({**raw, "model_type": name}, ignore=tuple(raw))
        model = known.make(config, task, device="meta")
        pipe = dataclasses.make_dataclass("Pipe", ["name", "model"])(name, model)
        found = parameters(pipe)
        assert found.total == sum(p.numel() for p in model.parameters())
        assert sum(piece.parameters for piece in found.pieces) == found.total
        assert all(piece.parameters >= 0 and piece.shared >= 0 for piece in found.pieces)


def test_gpt2_from_its_name_alone():
    found = parameters("gpt2")
    assert found.total == 124_439_808
    assert found.part("embedding") == 50257 * 768
    assert found.part("positions") == 1024 * 768
    assert found.part("attention") == 12 * 4 * (768 * 768 + 768)
    assert found.part("feed-forward") == 12 * (2 * 4 * 768 * 768 + 5 * 768)
    assert found.part("norm") == 25 * 2 * 768
    assert found.layers == {"": 12}
    (tied,) = [piece for piece in found.pieces if piece.part == "head"]
    assert (tied.parameters, tied.shared) == (0, 50257 * 768)  # the output is the embedding, counted there


def test_published_totals():
    presets = {name for known in families() for name in known.presets}
    assert "gpt2-xl" in presets
    assert parameters("gpt2-xl").total == 1_557_611_200


def test_layers_that_share_their_weights_are_counted_once():
    found = parameters(tiny_pipeline("albert"))
    piece = next(piece for piece in found.pieces if piece.name.endswith("attention.query.weight"))
    assert (piece.count, piece.parameters, piece.shared) == (3, 24 * 24, 2 * 24 * 24)


def test_two_stacks():
    found = parameters(tiny_pipeline("bart"))
    assert found.layers == {"encoder": 3, "decoder": 2}
    assert {piece.stack for piece in found.pieces} >= {"encoder", "decoder"}
    assert found.part("cross-attention") == 2 * (4 * 24 * 24 + 4 * 24)
    assert found.to_csv().count("\n") == len(found.pieces) + 1


def test_an_unknown_name_says_what_is_near():
    with pytest.raises(InputError, match="gpt2"):
        parameters("gtp2")
