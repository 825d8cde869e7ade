"""Settings of tokenizer_config.json that overrule tokenizer.json, for the families where `transformers` does so."""

import json

import tokenizers
from tokenizers import normalizers, pre_tokenizers, processors

from clearhead.text.builders.templates import Config


def override_bert_normalizer(backend: tokenizers.Tokenizer, config: Config) -> None:
    """Case, accents and Chinese characters."""
    normalizer = backend.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        backend.normalizer = normalizers.BertNormalizer(
            clean_text=normalizer.clean_text,
            handle_chinese_chars=bool(config.get("tokenize_chinese_chars", normalizer.handle_chinese_chars)),
            strip_accents=config.get("strip_accents", normalizer.strip_accents),
            lowercase=bool(config.get("do_lower_case", normalizer.lowercase)),
        )


def override_prefix_space(backend: tokenizers.Tokenizer, config: Config) -> None:
    """Whether a text begins with a space."""
    if "add_prefix_space" not in config:
        return
    prefix, splitter, processor = bool(config["add_prefix_space"]), backend.pre_tokenizer, backend.post_processor
    if isinstance(splitter, pre_tokenizers.ByteLevel):
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(
            add_prefix_space=prefix, trim_offsets=splitter.trim_offsets, use_regex=splitter.use_regex
        )
    if isinstance(processor, processors.RobertaProcessing):
        state = json.loads(processor.__getstate__())
        backend.post_processor = processors.RobertaProcessing(
            tuple(state["sep"]), tuple(state["cls"]), trim_offsets=state["trim_offsets"], add_prefix_space=prefix
        )
