"""The close view of a head holds together: products make the scores, scores the weights, for every family."""

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import attention, query_key
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, TEXT, texts, tiny_pipeline

ADDING = {"deberta", "deberta-v2", "mpnet", "t5", "mt5", "umt5", "xlnet"}


@pytest.mark.parametrize("name", [*MASKED, *(n for n in CAUSAL if n != "transfo-xl"), *ENCODER_DECODER, "xlnet"])
def test_the_steps_follow_from_each_other(name):
    pipe, given = tiny_pipeline(name), texts(name)
    for side in ("encoder", "decoder", "cross") if name in ENCODER_DECODER else ("self",):
        found = query_key(pipe, **given, layer=1, head=2, position=3, side=side)
        np.testing.assert_allclose(found.products, found.query * found.key, rtol=1e-6)
        assert (found.added is not None) == (name in ADDING and side != "cross")
        added = 0 if found.added is None else found.added
        np.testing.assert_allclose(found.scores, found.products.sum(-1) * found.scale + added, rtol=1e-4, atol=1e-4)
        seen = np.where(found.hidden, -np.inf, found.scores)
        np.testing.assert_allclose(found.weights, torch.tensor(seen).softmax(-1), atol=1e-5)
        whole = attention(pipe, **given, side=side, layers=[1])
        np.testing.assert_allclose(found.weights, whole.head(1, 2)[3], atol=1e-6)
        if name in CAUSAL or side == "decoder":
            assert found.hidden[4:] == [True] * (len(found.keys) - 4) and not found.hidden[3]
        else:
            assert not any(found.hidden)


def test_as_a_table():
    found = query_key(tiny_pipeline("gpt2"), TEXT)
    assert found.position == len(found.tokens) - 1
    rows = found.to_csv().splitlines()
    assert rows[0].startswith("key,token,score,weight,hidden,product_0") and len(rows) == 1 + len(found.keys)
    assert np.shape(found.to_dict()["products"]) == found.products.shape == (len(found.keys), 6)


def test_what_is_not_there():
    with pytest.raises(InputError, match="what it remembers"):
        query_key(tiny_pipeline("transfo-xl"), TEXT)
    with pytest.raises(InputError, match="no position 40"):
        query_key(tiny_pipeline("gpt2"), TEXT, position=40)
    with pytest.raises(InputError, match="4 heads"):
        query_key(tiny_pipeline("gpt2"), TEXT, head=4)
