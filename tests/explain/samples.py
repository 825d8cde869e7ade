"""Small random models of every family with a tokenizer that fits them, for tests that must hold for all."""

from dataclasses import fields
from functools import cache

import torch

from clearhead.models import family
from clearhead.models.gpt2 import FAMILY as GPT2
from clearhead.models.gpt2 import GPT2Config
from clearhead.pipeline import TextPipeline
from clearhead.text import train_tokenizer

TEXT = "the cat sat on the mat and the cat ran"
CORPUS = ["the cat sat on the mat and the cat ran, unbelievably. don't! a dog sat on the sofa: 我喜欢猫"] * 9
SIZES = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 20, "decoder_layers": 2,
    "encoder_layers": 2, "decoder_attention_heads": 3, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20,
    "feedforward_size": 20, "max_position_embeddings": 48, "embedding_size": 12, "head_dim": 8, "num_decoder_layers": 2,
    "rotary_dim": 4, "hidden_dropout_prob": 0.0, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
    "conv_kernel_size": 3, "div_val": 1, "cutoffs": [20], "mem_len": 4, "clamp_len": 10,
    "attention_layers": ["global", "local", "global"], "window_size": 4, "tie_word_embeddings": False,
}  # fmt: skip
PRIVATE = {"gpt2": {"num_attention_heads": 4}, "transfo-xl": {"embedding_size": 24}, "mpnet": {"pad_token_id": 1}}
MASKED = [
    "bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "mpnet", "distilbert", "electra", "albert", "big_bird",
    "deberta", "deberta-v2", "xlm",
]  # fmt: skip
CAUSAL = ["gpt2", "gpt3", "gpt_neo", "gptj", "openai-gpt", "ctrl", "transfo-xl"]
BOTH = ["transformer", "bart", "mbart", "m2m_100", "marian", "pegasus", "bigbird_pegasus", "t5", "mt5", "umt5"]


@cache
def tokenizer(kind):
    return train_tokenizer(CORPUS, kind=kind, vocab_size=330 if kind == "bpe" else 90, show_progress=False)


def small(name, task=None, kind=None, **more):
    """A random model with a tokenizer that it could have."""
    if task is None and name in MASKED:
        task = "masked-lm"
    task = task or family(name).default_task
    kind = kind or ("bpe" if task == "causal-lm" else "unigram" if name in BOTH else "wordpiece")
    tok = tokenizer(kind)
    config_class = family(name).config
    known = {field.name for field in fields(config_class)}
    sizes = {key: value for key, value in SIZES.items() if key in known} | PRIVATE.get(name, {})
    special = {"pad_token_id": tok.pad_token_id or 0, "eos_token_id": tok.eos_token_id or tok.sep_token_id,
               "bos_token_id": tok.cls_token_id or tok.eos_token_id, "decoder_start_token_id": tok.pad_token_id or 0,
               "forced_eos_token_id": None, "sep_token_id": tok.sep_token_id}  # fmt: skip
    special = {key: value for key, value in special.items() if key in known}
    config = config_class(**{"vocab_size": len(tok)} | special | sizes | more)
    torch.manual_seed(0)
    model = family(name).make(config, task)
    with torch.no_grad():  # far enough from their first values that every part shows
        for p in dict.fromkeys(p for p in model.parameters() if p.requires_grad):
            p.add_(torch.randn_like(p) * (0.25 if p.ndim > 1 else 0.1))
    return TextPipeline(model, tok, name=f"small {name}")


def texts(name):
    """What a family is asked about in a test: the arguments after the pipeline."""
    if name in MASKED:
        return {"text": TEXT.replace("mat", "[MASK]")}
    return {"text": TEXT, "target": "a dog sat"} if name in BOTH else {"text": TEXT}


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
