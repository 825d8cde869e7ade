"""Names the settings of tokenizer_config.json that nothing here applies: none is ignored in silence.

`transformers` passes over most of them without a word. The ids are the same as there; the model may have been trained
with others.
"""

import logging
from collections.abc import Mapping
from typing import Any

import tokenizers

from clearhead.text.added_tokens import EXTRAS, NAMES, content_of
from clearhead.text.builders.families import TokenizerFamily
from clearhead.text.builders.overrides import lowercases, prepends_space

log = logging.getLogger("clearhead")

# applied to every tokenizer
_APPLIED = {
    *NAMES,
    *EXTRAS,
    *"added_tokens_decoder tokenizer_class model_max_length max_len padding_side truncation_side".split(),
    *"model_input_names clean_up_tokenization_spaces split_special_tokens pad_token_type_id".split(),
    *"src_lang tgt_lang clearhead_family".split(),
}
# where a file came from, how calls pad and truncate (they say so themselves), chat templates, what no step here reads
_BOOKKEEPING = set(
    """
    name_or_path special_tokens_map_file tokenizer_file full_tokenizer_file vocab_file merges_file processor_class
    backend is_local is_fast use_fast init_inputs files_loaded transformers_version tokenizer_name tokenizer_type
    local_files_only revision cache_dir subfolder mirror proxies token use_auth_token trust_remote_code device_map
    chat_template chat_control_tokens response_template response_schema verbose model_type vocab_size vocab_type
    max_length stride padding truncation truncate truncation_strategy pad_to_multiple_of pad_id unk_id
    return_attention_mask return_token_type_ids return_tensors skip_special_tokens add_special_tokens
    source_lang target_lang separate_vocabs num_madeup_words legacy trim_offsets
    deprecation_warnings author license created_date max_model_input_sizes
    """.split()
)
# what an option says that changes nothing, in the families that do not have it
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "do_lower_case": (False,),
    "lowercase": (False,),
    "do_basic_tokenize": (True,),
    "clean_text": (True,),
    "wordpieces_prefix": ("##",),
    "tokenize_chinese_chars": (True, False),
    "strip_accents": (False,),
    "keep_accents": (True, False),
    "remove_space": (True,),
    "add_prefix_space": (True, False),
    "add_bos_token": (False,),
    "add_eos_token": (False,),
    "split_by_punct": (False,),
    "errors": ("replace",),
    "language_codes": ("m2m100",),
    "legacy_behaviour": (False,),
    "offset": (0,),
    "extra_ids": (0,),
    "mask_token_sent": (),
}


def warn_of_unapplied(
    config: Mapping[str, Any], family: TokenizerFamily | None, backend: tokenizers.Tokenizer, rebuilt: bool
) -> None:
    """rebuilt: from older files, which do not say how texts are cut, as a tokenizer.json does."""
    known = _APPLIED | _BOOKKEEPING | set(family.options if family is not None else ("add_bos_token", "add_eos_token"))
    unapplied = [
        f"{key} = {value!r:.60}"
        for key, value in config.items()
        if not (key in known or _is_token(key, value) or value in (None, "", [], {}))
        and (_matters(key, value) if rebuilt else _contradicts(key, value, backend))
    ]
    if unapplied:
        log.warning(
            "tokenizer_config.json sets %s, which is not applied: where the model was trained with it, ids differ.",
            ", ".join(unapplied),
        )


def _is_token(key: str, value: Any) -> bool:
    return key.endswith("_token") and content_of(value) is not None


def _matters(key: str, value: Any) -> bool:
    return value not in _NEUTRAL.get(key, ())


def _contradicts(key: str, value: Any, backend: tokenizers.Tokenizer) -> bool:
    """Whether a tokenizer.json does otherwise. Most options were only said when the file was made."""
    if key == "do_lower_case":
        return bool(value) != lowercases(backend)
    if key == "add_prefix_space":
        return value is False and prepends_space(backend)
    return key not in _NEUTRAL or (key == "do_basic_tokenize" and _matters(key, value))
