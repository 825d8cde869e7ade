"""Published configurations of GPT's relatives are read as they are; what cannot be honoured is refused by name."""

from __future__ import annotations

import pytest
import torch

from clearhead import hub
from clearhead.errors import ConfigError
from clearhead.models import family

SUMMARY = {
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
}
# the keys of the published files, with small sizes
PUBLISHED = {
    "gpt_neo": {
        "activation_function": "gelu_new",
        "architectures": ["GPTNeoForCausalLM"],
        "attention_dropout": 0,
        "attention_layers": ["global", "local"] * 2,
        "attention_types": [[["global", "local"], 2]],
        "bos_token_id": 50256,
        "embed_dropout": 0,
        "eos_token_id": 50256,
        "gradient_checkpointing": False,
        "hidden_size": 8,
        "initializer_range": 0.02,
        "intermediate_size": None,
        "layer_norm_epsilon": 1e-05,
        "max_position_embeddings": 16,
        "model_type": "gpt_neo",
        "num_heads": 2,
        "num_layers": 4,
        "resid_dropout": 0,
        **SUMMARY,
        "tokenizer_class": "GPT2Tokenizer",
        "use_cache": True,
        "vocab_size": 11,
        "window_size": 3,
    },
    "gptj": {
        "activation_function": "gelu_new",
        "architectures": ["GPTJForCausalLM"],
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "gradient_checkpointing": False,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gptj",
        "n_embd": 16,
        "n_head": 2,
        "n_inner": None,
        "n_layer": 2,
        "n_positions": 16,
        "resid_pdrop": 0.0,
        "rotary": True,
        "rotary_dim": 4,
        "scale_attn_weights": True,
        **SUMMARY,
        "tie_word_embeddings": False,
        "tokenizer_class": "GPT2Tokenizer",
        "vocab_size": 11,
    },
    "gpt2": {  # gpt2-medium's
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": 10,
        "embd_pdrop": 0.1,
        "eos_token_id": 10,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": 16,
        "n_embd": 8,
        "n_head": 2,
        "n_layer": 2,
        "n_positions": 16,
        "n_special": 0,
        "predict_special_tokens": True,
        "resid_pdrop": 0.1,
        **SUMMARY,
        "vocab_size": 11,
    },
    "openai-gpt": {
        "afn": "gelu",
        "architectures": ["OpenAIGPTLMHeadModel"],
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "openai-gpt",
        "n_ctx": 16,
        "n_embd": 8,
        "n_head": 2,
        "n_layer": 2,
        "n_positions": 16,
        "n_special": 0,
        "predict_special_tokens": True,
        "resid_pdrop": 0.1,
        **SUMMARY,
        "vocab_size": 11,
    },
    "ctrl": {
        "attn_pdrop": 0.1,
        "dff": 12,
        "embd_pdrop": 0.1,
        "initializer_range": 0.02,
        "is_decoder": False,
        "layer_norm_epsilon": 1e-06,
        "model_type": "ctrl",
        "n_ctx": 16,
        "n_embd": 8,
        "n_head": 2,
        "n_layer": 2,
        "n_positions": 16,
        "num_labels": 1,
        "pruned_heads": {},
        "resid_pdrop": 0.1,
        **SUMMARY,
        "vocab_size": 11,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_keys_are_read_and_written(name):
    fam = family(name)
    config = fam.config.from_dict(PUBLISHED[name])
    assert fam.config.from_dict(config.to_dict()) == config
    out = fam.make(config)(torch.randint(0, 11, (1, 5)))
    assert out.logits.shape == (1, 5, 11)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("gpt_neo", {"attention_types": [[["global"], 4]]}, "contradict"),
        ("gpt_neo", {"num_layers": 3}, "describes 4 layers"),
        ("gpt_neo", {"attention_types": [[["far"], 4]], "attention_layers": None}, "'far'"),
        ("gpt_neo", {"attention_types": ["global"], "attention_layers": None}, "must look like"),
        ("gpt_neo", {"window_size": 0}, "window_size"),
        ("gptj", {"rotary_dim": 3}, "rotary_dim"),
        ("gptj", {"rotary_dim": 10}, "rotary_dim"),
        ("gptj", {"rotary_dim": 0}, "rotary_dim"),
        ("gptj", {"rotary_dim": None}, "rotary_dim"),
        ("gptj", {"rotary": False}, "rotary"),
        ("gptj", {"scale_attn_weights": False}, "scale_attn_weights"),
        ("openai-gpt", {"n_special": 3}, "n_special"),
        ("gpt2", {"n_special": 3}, "n_special"),
        ("gptj", {"n_special": 3}, "n_special"),
        ("openai-gpt", {"afn": "gelu_fast"}, "afn"),
        ("ctrl", {"dff": 0}, "dff"),
        ("ctrl", {"n_head": 3}, "n_head"),
        ("ctrl", {"activation_function": "gelu"}, "activation_function"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(name, change, words):
    with pytest.raises(ConfigError, match=words):
        family(name).config.from_dict({**PUBLISHED[name], **change}, strict=True)


@pytest.mark.parametrize("given", ["types", "layers", "neither"])
def test_layers_may_be_described_either_way(given):
    raw = {k: v for k, v in PUBLISHED["gpt_neo"].items() if k not in ("attention_types", "attention_layers")}
    raw |= {"types": {"attention_types": [[["local"], 1], [["global", "local"], 1], [["local"], 1]]}}.get(given, {})
    raw |= {"layers": {"attention_layers": ["local", "global", "local", "local"]}}.get(given, {})
    fam = family("gpt_neo")
    model = fam.make(fam.config.from_dict(raw))
    wanted = [None, 3, None, 3] if given == "neither" else [3, None, 3, 3]
    assert [block.window for block in model.stack.blocks] == wanted
    assert fam.config.from_dict(model.config.to_dict()) == model.config


@pytest.mark.parametrize(
    ("name", "stray"),
    [
        ("gpt_neo", "transformer.h.0.attn.attention.masked_bias"),
        ("gpt_neo", "transformer.h.1.attn.attention.bias"),
        ("gptj", "transformer.h.0.attn.bias"),
        ("openai-gpt", "transformer.h.0.attn.bias"),
        ("openai-gpt", "transformer.position_ids"),
        ("ctrl", "transformer.pos_encoding"),
    ],
)
def test_tables_in_old_files_are_skipped(name, stray, tmp_path):
    from safetensors.torch import load_file, save_file

    fam = family(name)
    model = fam.make(fam.config.from_dict(PUBLISHED[name]))
    hub.save_model(model, tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), stray: torch.ones(2, 2)}, file)
    again, ids = hub.load_model(tmp_path), torch.randint(0, 11, (1, 5))
    assert torch.equal(again(ids).logits, model(ids).logits)


def test_segments_of_ctrl_are_scaled_like_its_tokens(tmp_path):
    import transformers

    torch.manual_seed(0)
    theirs = transformers.CTRLModel(transformers.CTRLConfig(vocab_size=11, n_embd=8, n_head=2, n_layer=2, dff=9)).eval()
    theirs.save_pretrained(tmp_path)
    ours = hub.load_model(tmp_path)
    ids, kinds = torch.randint(0, 11, (2, 6)), torch.randint(0, 11, (2, 6))
    with torch.no_grad():
        want = theirs(ids, token_type_ids=kinds).last_hidden_state
        torch.testing.assert_close(ours(ids, token_type_ids=kinds).last_hidden_state, want, rtol=1e-5, atol=1e-5)
