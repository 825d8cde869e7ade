"""Keys of config.json that no field holds: those that change nothing, and those known to change the numbers.

A key that is in neither list is unknown: the model opens if its weights fit without it, and a warning names the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from clearhead.generation_options import CONFIG_KEYS

# Keys that say how something was made, stored or sampled. They do not change what the network computes.
INERT = CONFIG_KEYS | frozenset(  # and what `generate` does unless told otherwise, which older checkpoints keep here
    """
    model_type architectures transformers_version clearhead_version torch_dtype dtype auto_map name_or_path
    use_cache use_return_dict return_dict output_attentions output_hidden_states output_scores torchscript
    use_bfloat16 chunk_size_feed_forward gradient_checkpointing attn_implementation tokenizer_class
    task_specific_params finetuning_task num_labels prefix output_past label_smoothing xla_device
    tie_last_hidden_states experts_implementation return_dict_in_generate tf_legacy_loss
    sentence_transformers sbert_ce_default_activation_function

    author authors license licence copyright date created_at created_date creation_date description comment notes
    citation homepage url repository base_model base_model_name model_name model_id model_path pretrained_model
    cache_path cache_dir tokenizer_name tokenizer_type tokenizer_path vocab_file vocab_path merges_file
    do_lower_case lowercase inputs_length targets_length max_seq_length max_seq_len model_max_length
    is_gpu n_gpu no_cuda device fp16 bf16 seed random_seed learning_rate lr weight_decay warmup_steps batch_size
    train_batch_size eval_batch_size epochs num_epochs num_train_epochs max_epochs
    """.split()
)
_INERT_PATTERN = re.compile(r"_.*|.*_token_ids?|.*_version")  # special tokens by number are the tokenizer's matter

# What a save says itself.
WRITTEN_ANEW = frozenset(
    "model_type architectures transformers_version torch_dtype dtype auto_map name_or_path num_labels label2id".split()
)

# Keys every family knows, with the values that leave the network as published.
FIXED: dict[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (False,),
    "tie_encoder_decoder": (False,),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
    "quantization_config": (None, {}),
    "per_layer_config": (None, {}),
    "position_embedding_type": ("absolute", None),
}

_OFF: tuple[Any, ...] = (None, False, 0, "", "none", [], {})
# Options of related architectures that change the numbers while every tensor may still fit: (names, what leaves the
# network as it is). A family that has one of them knows it as a field.
_ELSEWHERE: tuple[tuple[re.Pattern[str], tuple[Any, ...]], ...] = tuple(
    (re.compile(names.replace(" ", "")), neutral)
    for names, neutral in (
        # positions
        (r".*alibi.* | (.*_)?rotary(_.*)? | (.*_)?rope(_.*)?", _OFF),
        (r"use_relative_positions? | relative_attention | use_relative_attention", _OFF),
        (r"scale_embeddings? | scale_embed", _OFF),
        # who sees whom
        (r"(use_)?sliding_window(_.*)? | attention_window(_size)? | local_attention(_.*)?", _OFF),
        (r"global_attn_every_n_layers | attention_chunk_size", (*_OFF, 1)),
        (r"is_causal | bidirectional | use_bidirectional_attention | (is_|use_)?prefix_lm | pre_seq_len", _OFF),
        # heads and experts
        (r"multi_query(_attention)? | new_decoder_architecture | multi_query_group_num", _OFF),
        (r"(use|is)_moe", _OFF),
        (r"(num|n)_(.*_)?experts(_.*)?", (*_OFF, 1)),
        # the residual stream and its norms
        (r"(use_)?parallel_(residual|attn|attention|block|layernorm)", _OFF),
        (r"(use_)?pre_?(layer_?)?norm | normalize_before | do_layer_norm_before | norm_first", _OFF),
        (r"(use_)?qk_(layer_?)?norms? | (use_)?rms_?norm | sandwich_norm | normalize_embedding", _OFF),
        # scales
        (r"scale_attn_by_inverse_layer_idx | (final_|attn_|attention_)?logits?_soft_?cap(ping)?", _OFF),
        (r"mup | use_mup | mup_.*", _OFF),
        (r"(embedding|residual|attention|lm_head)_multiplier", (None, 1)),
        (r"logits?_scal(e|ing) | scale_emb | scale_depth", (None, 1)),
    )
)  # fmt: skip

_ADVICE = {
    "quantization_config": " Its weights are stored in few bits. Load the full-precision original and round it here "
    '(quantize="int8" or "int4"), or open this one in transformers, call model.dequantize() and save that.',
    "adapters": " Merge the adapters into the weights where they were made, and save that.",
}


def is_inert(key: str) -> bool:
    return key in INERT or _INERT_PATTERN.fullmatch(key) is not None


def effect(key: str, value: Any, heads: Any, width: Any) -> Literal["none", "refused", "unknown"]:
    """What a key that no family claims does: nothing, or another network than is built here, or nobody knows.

    heads, width   what the same file says of them: as many key and value heads, of the usual size, are no news
    """
    if value is None or is_inert(key):
        return "none"
    if key in FIXED:
        neutral = value in FIXED[key]
    elif key == "adapters":
        neutral = not _has_adapters(value)
    elif key in ("num_key_value_heads", "num_kv_heads", "n_head_kv"):
        neutral = value == heads
    elif key == "head_dim":
        neutral = all(isinstance(n, int) for n in (value, heads, width)) and value * heads == width
    elif key == "layer_types":
        neutral = isinstance(value, list) and set(map(str, value)) <= {"full_attention"}
    else:
        known = [values for names, values in _ELSEWHERE if names.fullmatch(key)]
        if not known:
            return "unknown"
        neutral = value in known[0]
    return "none" if neutral else "refused"


def advice(key: str) -> str:
    """What to do about a key that is refused; empty where there is nothing to say."""
    return _ADVICE.get(key, "")


def _has_adapters(value: Any) -> bool:
    """A table of no adapters may still describe the kinds that there could be."""
    return bool(value.get("adapters") or value.get("fusions") if isinstance(value, Mapping) else value)
