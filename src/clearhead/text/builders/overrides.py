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


def override_case(backend: tokenizers.Tokenizer, config: Config) -> None:
    """Case, before the steps of a SentencePiece model."""
    _override_cleaning(backend, config.get("do_lower_case"), None)


def override_case_and_accents(backend: tokenizers.Tokenizer, config: Config) -> None:
    """The same, with accents."""
    _override_cleaning(backend, config.get("do_lower_case"), config.get("keep_accents"))


def _override_cleaning(backend: tokenizers.Tokenizer, lower: bool | None, keep_accents: bool | None) -> None:
    """None: as in the file."""
    steps = _steps(backend)
    strips, lowers = _has(steps, normalizers.StripAccents), _has(steps, normalizers.Lowercase)
    strip = strips if keep_accents is None else not keep_accents
    lower = lowers if lower is None else bool(lower)
    if (strip, lower) == (strips, lowers):
        return
    cleaning: list[normalizers.Normalizer] = [normalizers.NFKD(), normalizers.StripAccents()] if strip else []
    cleaning += [normalizers.Lowercase()] if lower else []
    replaced = (normalizers.Lowercase, *((normalizers.NFKD, normalizers.StripAccents) if strips else ()))
    steps = [step for step in steps if not isinstance(step, replaced)]
    place = next((n for n, step in enumerate(steps) if isinstance(step, normalizers.Precompiled)), len(steps))
    backend.normalizer = normalizers.Sequence([*steps[:place], *cleaning, *steps[place:]])


def lowercases(backend: tokenizers.Tokenizer) -> bool:
    """Whether texts are put in lower case first."""
    normalizer = backend.normalizer
    if isinstance(normalizer, normalizers.BertNormalizer):
        return bool(normalizer.lowercase)
    return _has(_steps(backend), normalizers.Lowercase)


def prepends_space(backend: tokenizers.Tokenizer) -> bool:
    """Whether every word of a SentencePiece model's text begins with a space, the first one too."""
    splitter = backend.pre_tokenizer
    return splitter is not None and b'"prepend_scheme":"always"' in splitter.__getstate__()


def _steps(backend: tokenizers.Tokenizer) -> list[normalizers.Normalizer]:
    normalizer = backend.normalizer
    if isinstance(normalizer, normalizers.Sequence):
        return [normalizer[n] for n in range(len(normalizer))]
    return [] if normalizer is None else [normalizer]


def _has(steps: list[normalizers.Normalizer], kind: type[normalizers.Normalizer]) -> bool:
    return any(isinstance(step, kind) for step in steps)


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
