"""A tiny model of any family with random weights, alone or with a tokenizer that it could have."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import torch
from torch import nn

from clearhead.models import Config, Model, family
from clearhead.pipeline import TextPipeline
from clearhead.text import Tokenizer, train_tokenizer

TEXT = "the cat sat on the mat and the cat ran"
CORPUS = ["the cat sat on the mat and the cat ran, unbelievably. don't! a dog sat on the sofa: 我喜欢猫"] * 9
VOCABULARY = {"bpe": 330, "wordpiece": 90, "unigram": 90}
# Fields of the configs, whichever of them a family has.
SIZES = {
    "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 20,
    "encoder_layers": 2, "decoder_layers": 2, "num_decoder_layers": 2, "decoder_attention_heads": 3,
    "encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "feedforward_size": 20, "max_position_embeddings": 48,
    "embedding_size": 12, "head_dim": 8, "rotary_dim": 4, "hidden_dropout_prob": 0.0, "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"], "conv_kernel_size": 3, "div_val": 1, "cutoffs": [20], "mem_len": 4, "clamp_len": 10,
    "attention_layers": ["global", "local", "global"], "window_size": 4, "tie_word_embeddings": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
    "lstm_size": 20, "projection_size": 12, "filters": [[1, 6], [2, 10]], "character_size": 4,
}  # fmt: skip
OWN_SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"num_attention_heads": 4},
    "mpnet": {"pad_token_id": 1},
    "transfo-xl": {"embedding_size": 24},
} | {name: {"decoder_start_token_id": 0} for name in ("t5", "mt5", "umt5")}
MASKED = [
    "bert", "roberta", "xlm-roberta", "xlm-roberta-xl", "mpnet", "distilbert", "electra", "albert", "big_bird",
    "deberta", "deberta-v2", "xlm",
]  # fmt: skip
CAUSAL = ["gpt2", "gpt3", "gpt_neo", "gptj", "openai-gpt", "ctrl", "transfo-xl"]
ENCODER_DECODER = [
    "transformer", "bart", "mbart", "m2m_100", "marian", "pegasus", "bigbird_pegasus", "t5", "mt5", "umt5",
]  # fmt: skip


def shake(model: nn.Module) -> nn.Module:
    """Weights far enough from their first values that every part of the model shows in the output."""
    with torch.no_grad():
        for p in dict.fromkeys(p for p in model.parameters() if p.requires_grad):  # not tables that are computed
            p.add_(torch.randn_like(p) * (0.25 if p.ndim > 1 else 0.1))
    return model.eval()


def fields_of(name: str) -> set[str]:
    """The options that this family's config has, as they are called here."""
    return {field.name for field in fields(family(name).config)}


def tiny_config(name: str, task: str | None = None, dropout: bool = True, **options: Any) -> Config:
    """`options` in the words of the config's fields or of the published config.json."""
    config_class = family(name).config
    known = fields_of(name)
    if task == "causal-lm" and "is_decoder" in known:
        options = {"is_decoder": True} | options
    sizes = {key: value for key, value in (SIZES | OWN_SIZES.get(name, {})).items() if key in known}
    published = {key: value for key, value in options.items() if key not in known}
    config = config_class(**sizes | {key: value for key, value in options.items() if key in known})
    if published:
        config = config_class.from_dict(config.to_dict() | published)
    if not dropout:
        for key in known:
            if "drop" in key:
                setattr(config, key, 0.0)
    return config


def tiny(
    name: str, task: str | None = None, *, seed: int = 0, shaken: bool = True, dropout: bool = True, **options: Any
) -> Model:
    """Random weights from `seed`: the family's first ones, and shaken unless the model is to be trained."""
    torch.manual_seed(seed)
    model = family(name).make(tiny_config(name, task, dropout, **options), task)
    return shake(model) if shaken else model  # type: ignore[return-value]


@cache
def tokenizer(kind: str) -> Tokenizer:
    return train_tokenizer(CORPUS, kind=kind, vocab_size=VOCABULARY[kind], show_progress=False)


def special_ids(tok: Tokenizer) -> dict[str, Any]:
    return {
        "pad_token_id": tok.pad_token_id or 0,
        "eos_token_id": tok.eos_token_id or tok.sep_token_id,
        "bos_token_id": tok.cls_token_id or tok.eos_token_id,
        "sep_token_id": tok.sep_token_id,
        "decoder_start_token_id": tok.pad_token_id or 0,
    }


def tiny_pipeline(
    name: str, task: str | None = None, kind: str | None = None, tok: Tokenizer | None = None, **options: Any
) -> TextPipeline:
    """By default the task that the family is known for, and a tokenizer of the kind that it uses."""
    if task is None and name in MASKED:
        task = "masked-lm"
    task = task or family(name).default_task
    kind = kind or ("bpe" if task == "causal-lm" else "unigram" if name in ENCODER_DECODER else "wordpiece")
    tok = tok or tokenizer(kind)
    known = fields_of(name)
    values = {"vocab_size": len(tok)} | special_ids(tok) | OWN_SIZES.get(name, {})
    values = {key: value for key, value in values.items() if key in known}
    return TextPipeline(tiny(name, task, **values | options), tok, name=f"tiny {name}")


def tiny_translator() -> TextPipeline:
    """A Transformer with a tokenizer for each language."""
    source = train_tokenizer(["the cat sat on the mat"] * 9, kind="bpe", vocab_size=280, show_progress=False)
    target = train_tokenizer(["un chat est sur le tapis"] * 9, kind="bpe", vocab_size=290, show_progress=False)
    model = tiny(
        "transformer", vocab_size=len(target), source_vocab_size=len(source), tie_source_embeddings=False,
        pad_token_id=1, bos_token_id=target.eos_token_id, eos_token_id=target.eos_token_id,
    )  # fmt: skip
    return TextPipeline(model, source.with_target(target), name="tiny translator")


def texts(name: str) -> dict[str, str]:
    """What a family is asked about in a test: the arguments after the pipeline."""
    if name in MASKED:
        return {"text": TEXT.replace("mat", "[MASK]")}
    return {"text": TEXT, "target": "a dog sat"} if name in ENCODER_DECODER else {"text": TEXT}
