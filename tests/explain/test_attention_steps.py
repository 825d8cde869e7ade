"""Each of the six steps follows from the one before, for every family, and the last is the layer's own output."""

import numpy as np
import pytest
import torch

from clearhead.errors import InputError
from clearhead.explain import attention, attention_steps
from tests.tiny import CAUSAL, ENCODER_DECODER, MASKED, TEXT, texts, tiny_pipeline


@pytest.mark.parametrize("name", [*MASKED, *(n for n in CAUSAL if n != "transfo-xl"), *ENCODER_DECODER, "xlnet"])
def test_each_step_follows_from_the_one_before(name):
    pipe, given = tiny_pipeline(name), texts(name)
    for side in ("encoder", "decoder", "cross") if name in ENCODER_DECODER else ("self",):
        found = attention_steps(pipe, **given, layer=1, side=side)
        added = 0 if found.added is None else found.added
        products = found.query @ found.key.swapaxes(1, 2)
        np.testing.assert_allclose(found.scores, products * found.scale + added, rtol=1e-4, atol=1e-4)
        seen = np.where(found.weights == 0, -np.inf, found.scores)
        np.testing.assert_allclose(found.weights, torch.tensor(seen).softmax(-1), atol=1e-5)
        np.testing.assert_allclose(found.answers, found.weights @ found.value, rtol=1e-4, atol=1e-5)
        whole = attention(pipe, **given, side=side, layers=[1])
        np.testing.assert_allclose(found.weights, whole.weights[0], atol=1e-6)
        assert (found.input is None) == (side == "cross")
        assert len(found.output) == len(found.tokens)
        if name in ("bert", "gpt2", "transformer"):  # joined and sent through one more matrix
            stack = {"self": "stack", "encoder": "encoder"}.get(side, "decoder")
            block = getattr(pipe.model, stack).blocks[1]
            last = (block.cross_attention if side == "cross" else block.attention).output
            joined = torch.tensor(found.answers).transpose(0, 1).flatten(1)
            np.testing.assert_allclose(found.output, last(joined).detach(), rtol=1e-3, atol=1e-5)


def test_as_a_table_and_what_is_not_there():
    found = attention_steps(tiny_pipeline("gpt2"), TEXT)
    rows = found.to_csv().splitlines()
    assert rows[0] == "head,query,query_token,key,key_token,product,score,weight"
    assert len(rows) == 1 + found.weights.size
    with pytest.raises(InputError, match="what it remembers"):
        attention_steps(tiny_pipeline("transfo-xl"), TEXT)
    with pytest.raises(InputError, match="3 layers"):
        attention_steps(tiny_pipeline("gpt2"), TEXT, layer=3)
