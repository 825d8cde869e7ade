"""Position schemes as the model itself has them: each is checked against what the model computes with it."""

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import positions
from clearhead.nn import trace
from clearhead.nn.positions import sinusoidal
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, tiny_pipeline


def ways(found):
    return [(scheme.side, scheme.encoding) for scheme in found.schemes]


@pytest.mark.parametrize("name", [*MASKED, *CAUSAL, *ENCODER_DECODER, "xlnet"])
def test_every_family_has_one(name):
    found = positions(tiny_pipeline(name), length=9)
    assert found.schemes
    for scheme in found.schemes:
        assert scheme.values.shape[0] == len(scheme.rows) == (17 if scheme.encoding.startswith("distance") else 9)
        assert np.isfinite(scheme.values).all()
        if scheme.similarity is not None:
            assert scheme.similarity.shape == (len(scheme.rows),) * 2
            # a row of zeros is like nothing, not even itself
            assert np.isin(scheme.similarity.diagonal().round(4), (0.0, 1.0)).all()
            assert np.allclose(scheme.similarity, scheme.similarity.T, atol=1e-6)
    assert found.to_csv().count("\n") == 1 + sum(scheme.values.size for scheme in found.schemes)


@pytest.mark.parametrize("name", ["gpt2", "roberta", "bart", "transformer"])
def test_what_is_added_to_the_tokens(name):
    pipe = tiny_pipeline(name)
    found = positions(pipe, length=6)
    sides = ["encoder.", "decoder."] if name in ENCODER_DECODER else [""]
    with torch.no_grad(), trace(pipe.model, *(f"{side}embed.positions" for side in sides)) as seen:
        pipe.model(**{key: torch.arange(4, 10)[None] for key in ["input_ids", "decoder_input_ids"][: len(sides)]})
    for side, scheme in zip(sides, found.schemes, strict=True):
        assert np.allclose(scheme.values, seen[f"{side}embed.positions"][0].numpy())


def test_the_transformers_waves():
    found = positions(tiny_pipeline("transformer"), length=12)
    assert ways(found) == [("encoder", "sinusoidal"), ("decoder", "sinusoidal")]
    assert np.allclose(found.schemes[0].values, sinusoidal(12, 24).numpy(), atol=1e-6)
    alike = found.schemes[0].similarity  # of two positions it depends on their distance alone
    assert np.allclose(alike[0, :5], alike[6, 6:11], atol=1e-5)


def test_rotary_turns_by_the_distance():
    pipe = tiny_pipeline("gptj")
    (scheme,) = positions(pipe, length=8).schemes
    assert scheme.encoding == "rotary"
    assert np.allclose(scheme.values[:, 0], np.cos(np.arange(8)), atol=1e-5)  # the fastest pair: one radian a step
    assert np.allclose(scheme.values[:, 1], np.sin(np.arange(8)), atol=1e-5)
    assert np.allclose(scheme.similarity[0, :5], scheme.similarity[3, 3:], atol=1e-5)


@pytest.mark.parametrize("name", ["t5", "umt5", "mpnet"])
def test_the_bias_is_what_is_added_to_the_scores(name):
    pipe = tiny_pipeline(name)
    scheme = next(s for s in positions(pipe, length=7).schemes if s.encoding == "distance-bias")
    side = "encoder." if name in ENCODER_DECODER else ""
    at = f"{side}layers.0.attention."
    with torch.no_grad(), trace(pipe.model, f"{at}query|key|scores") as seen:
        inputs = {"input_ids": torch.arange(4, 11)[None]}
        if name in ENCODER_DECODER:
            inputs["decoder_input_ids"] = inputs["input_ids"]
        pipe.model(**inputs)
    stack = pipe.model.encoder if name in ENCODER_DECODER else pipe.model.stack
    plain = seen[f"{at}query"] @ seen[f"{at}key"].transpose(-1, -2) * stack.blocks[0].attention.scale
    added = (seen[f"{at}scores"] - plain)[0]  # (heads, query, key)
    for q, k in ((0, 6), (6, 0), (3, 3), (2, 5)):
        assert np.allclose(scheme.values[scheme.rows.index(k - q)], added[:, q, k].numpy(), atol=1e-4)
    assert scheme.columns == "head"


def test_relative_keys_of_bert():
    pipe = tiny_pipeline("bert", position_embedding_type="relative_key", max_position_embeddings=6)
    scheme = positions(pipe, length=4, layer=1).schemes[-1]
    table = pipe.model.stack.blocks[1].attention.relative.table.weight
    assert scheme.encoding == "distance-vectors"
    assert np.allclose(scheme.values[scheme.rows.index(-2)], table[5 + 2].detach().numpy())  # query - key = 2


def test_the_length_ends_where_the_table_does():
    assert positions(tiny_pipeline("gpt2"), length=1000).schemes[0].rows[-1] == 47
    with pytest.raises(InputError, match="length"):
        positions(tiny_pipeline("gpt2"), length=1)
    with pytest.raises(InputError, match="layer"):
        positions(tiny_pipeline("gpt2"), layer=9)
