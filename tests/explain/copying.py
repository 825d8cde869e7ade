"""A GPT-2 whose weights are set by hand: what its heads do is known."""

import torch

from clearhead.models.gpt2 import FAMILY as GPT2
from clearhead.models.gpt2 import GPT2Config
from clearhead.pipeline import TextPipeline
from tests.tiny import tokenizer


def copying_gpt2(sharp=40.0):
    """A GPT-2 of two layers whose weights are set by hand, so that it continues what it has read before.

    The residual stream has four parts: the token (one-hot), the position (one-hot), the token before, the answer.
    Head 1 of layer 0 looks at the previous position and notes its token; head 0 of layer 1, the induction head, looks
    where the noted token is the present one and hands its token on as the answer. The other two heads do nothing.
    """
    tok, places = tokenizer("wordpiece"), 48
    words = len(tok)
    each = max(words, places)  # the size of a head
    width = 2 * max(each, -(-(3 * words + places) // 2))
    head = width // 2
    config = GPT2Config(
        vocab_size=words, hidden_size=width, num_hidden_layers=2, num_attention_heads=2, intermediate_size=4,
        max_position_embeddings=places, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = GPT2.make(config)
    token, place, noted, answer = 0, words, words + places, 2 * words + places
    identity = torch.eye(width)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.zero_()
            if "norm" in name and name.endswith("weight"):
                parameter.fill_(1.0)
        model.stack.embed.tokens.weight.copy_(identity[:words])
        model.stack.embed.positions.weight.copy_(identity[place : place + places])

        def set_head(layer, number, query, key, value, out):
            """query, key: the parts of the stream that must agree; value: what is handed on, to `out`."""
            attention = model.stack.layers[layer].attention
            q, k, v = (attention.qkv.weight[part * width + number * head :][:head] for part in range(3))
            q[: len(query)] = query * sharp
            k[: len(key)] = key
            v[:words] = value
            attention.output.weight[out : out + words, number * head : number * head + words] = torch.eye(words)

        here = identity[place : place + places]
        before = torch.cat((here[1:], torch.zeros(1, width)))  # at position p + 1, asks for position p
        set_head(0, 1, before, here, identity[token : token + words], noted)
        set_head(1, 0, identity[:words], identity[noted : noted + words], identity[:words], answer)
        model.head.output.weight.copy_(identity[answer : answer + words] * 10)
    return TextPipeline(model, tok, name="copying")
