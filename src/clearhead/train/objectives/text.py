"""What all objectives on text share: a tokenizer, the special tokens it must have, and a text written to be read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from clearhead.errors import ConfigError, InputError
from clearhead.generate.session import check_can_generate
from clearhead.models import Model
from clearhead.pipeline import TextPipeline
from clearhead.text import Tokenizer, train_tokenizer
from clearhead.text.builders.templates import BERT
from clearhead.train.objectives.base import Objective

SAMPLED = 60  # tokens of a sample
BROUGHT = {  # special tokens that a tokenizer of each kind has anyway
    "bpe": ("bos_token", "eos_token", "unk_token"),
    "wordpiece": ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"),
    "unigram": ("pad_token", "eos_token", "unk_token"),
    "words": ("pad_token", "bos_token", "eos_token", "unk_token"),
}


class TextObjective(Objective):
    """An objective whose codec is a tokenizer.

    special_tokens   those that a tokenizer trained for it must have, where its kind brings none: {"pad_token": …}
    """

    unit = "token"
    codec_kinds: ClassVar[tuple[str, ...]] = ("bpe", "wordpiece", "unigram", "words")
    special_tokens: ClassVar[Mapping[str, str]] = {}

    def __init__(self, tokenizer: Tokenizer, length: int) -> None:
        require_tokenizer(tokenizer)
        super().__init__(tokenizer, length)
        self.tokenizer = tokenizer

    @classmethod
    def extra_tokens(cls) -> list[str]:
        """Further tokens that a tokenizer trained for it must have (T5's sentinels)."""
        return []

    @classmethod
    def finish_tokenizer(cls, tokenizer: Tokenizer) -> None:
        """Give a tokenizer that was trained for it the special tokens that its kind did not bring."""
        new = {name: token for name, token in cls.special_tokens.items() if getattr(tokenizer, name) is None}
        tokenizer.add_special_tokens(new)
        if {"cls_token", "sep_token"} <= new.keys():  # they stand around every text
            BERT.wrap(tokenizer.backend, tokenizer.special_tokens_map, {})
            tokenizer.saved_class = "PreTrainedTokenizerFast"  # the GPT-2 class of `transformers` puts nothing there

    @classmethod
    def train_codec(
        cls, texts: Iterable[str], kind: str, vocab_size: int, *, lowercase: bool | None = None,
        special_tokens: Sequence[str] = (), min_count: int | None = None, show_progress: bool = True,
    ) -> Tokenizer:  # fmt: skip
        if min_count is not None and kind == "unigram":
            raise InputError("A unigram vocabulary is cut down by likelihood, not by counts: leave tokenizer.min_count "
                             "out.")  # fmt: skip
        often = {} if min_count is None else {"min_frequency": min_count}
        own = [token for name, token in cls.special_tokens.items() if name not in BROUGHT[kind]]
        made = train_tokenizer(
            texts, kind, vocab_size, lowercase=lowercase, special_tokens=[*special_tokens, *cls.extra_tokens(), *own],
            show_progress=show_progress, **often,
        )  # fmt: skip
        cls.finish_tokenizer(made)
        return made

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"tokenizer": tokenizer_identity(self.tokenizer)}

    def special_ids(self) -> dict[str, int]:
        names = ("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id")
        return {name: n for name in names if (n := getattr(self.tokenizer.target, name)) is not None}

    def pipeline(self, model: Model, name: str) -> TextPipeline:
        return TextPipeline(model, self.tokenizer, name=name, sentence=self.sentence())

    @classmethod
    def check_sampling(cls, model: Model) -> None:
        check_can_generate(model)

    def check_sample(self, pipe: TextPipeline, prompt: str) -> None:
        if self._sample_length(pipe, prompt) < 1:
            raise ConfigError("evaluation.sample is as long as the model can read: nothing can be written after it.")

    def sample(self, pipe: TextPipeline, prompt: str, seed: int) -> str:
        """What the model writes now, to be read by a person."""
        length = self._sample_length(pipe, prompt)
        text: str = pipe.generate(prompt, max_new_tokens=length, do_sample=True, top_k=40, seed=seed)
        return text

    @staticmethod
    def _sample_length(pipe: TextPipeline, prompt: str) -> int:
        """How many tokens of a sample there is room for."""
        most = pipe.model.max_length
        read = 1 if pipe.model.is_encoder_decoder else pipe.encode_prompts(prompt)[1].shape[1]
        return SAMPLED if most is None else min(SAMPLED, most - read)


def require_tokenizer(codec: Any) -> None:
    if not isinstance(codec, Tokenizer):
        raise InputError(f"This objective learns from text: it needs a tokenizer, not a {type(codec).__name__}.")


def tokenizer_identity(tokenizer: Tokenizer) -> list[Any]:
    """What changes with anything that the tokenizer makes of a text."""
    if tokenizer.source_files is not None:
        written = {name: hashlib.sha256(data).hexdigest() for name, data in tokenizer.source_files.files().items()}
        model = json.dumps(written)
    else:
        model = tokenizer.backend.to_str()
    target = tokenizer.target
    other = None if target is tokenizer or target.tgt_lang is not None else tokenizer_identity(target)
    languages = [tokenizer.src_lang, tokenizer.tgt_lang]
    return [model, tokenizer.special_tokens_map, tokenizer.truncation_side, languages, other]
