"""The tokenizer: text to ids and back, called the way `transformers` users are used to."""

import copy
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models

from clearhead.errors import InputError
from clearhead.text.cleanup import clean_up
from clearhead.text.encode import EncodeOptions, encode
from clearhead.text.encoding import Encoding, as_tensors
from clearhead.text.ids import ids_of, not_an_id
from clearhead.text.languages import Languages
from clearhead.text.options import check_tensors, longest_length, side_of
from clearhead.text.padding import Padding, PaddingOption, check_rows, columns_of, padding_strategy
from clearhead.text.special_tokens import SpecialTokens
from clearhead.text.truncation import TruncationOption
from clearhead.text.units import units_of
from clearhead.units import TokenUnit


class Tokenizer(SpecialTokens):
    """Text to ids and back.

    Open one with `load_tokenizer` or `train_tokenizer`. Any number of threads may use it at once. A translator's has a
    second side, `target`, for what the model writes; an ordinary tokenizer is its own target.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        config: Mapping[str, Any] | None = None,
        *,
        named: Mapping[str, str | None] | None = None,
        extra: Iterable[str] = (),
        model_input_names: Sequence[str] = ("input_ids", "attention_mask"),
        saved_class: str = "PreTrainedTokenizerFast",
        languages: Languages | None = None,
    ) -> None:
        """`config` is what tokenizer_config.json says; `named` and `extra` are the special tokens.

        `saved_class` is the tokenizer class that `save` writes down where the configuration names none.
        """
        super().__init__(backend, named, extra)
        self.config: dict[str, Any] = dict(config or {})
        self.saved_class = saved_class
        # kept only to be written back: calls say for themselves how they pad and truncate
        self.file_padding, self.file_truncation = backend.padding, backend.truncation
        self.padding_side: str = side_of(self.config.get("padding_side", "right"), "padding_side")
        self.pad_token_type_id = int(self.config.get("pad_token_type_id") or 0)  # the segment of padding
        self.truncation_side: str = side_of(self.config.get("truncation_side", "right"), "truncation_side")
        self.model_max_length: int = longest_length(self.config)
        self.model_input_names: list[str] = list(self.config.get("model_input_names") or model_input_names)
        self.clean_up_tokenization_spaces = bool(self.config.get("clean_up_tokenization_spaces"))
        self.languages = languages
        self._target: Tokenizer | None = None
        self._src_lang: str | None = None
        self._tgt_lang: str | None = None
        if languages is not None:
            self.src_lang = self.config.get("src_lang") or languages.default
            self.tgt_lang = self.config.get("tgt_lang")

    # ---- text to ids

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        text_target: Any = None,
        *,
        add_special_tokens: bool = True,
        padding: PaddingOption = False,
        truncation: TruncationOption = None,
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_offsets_mapping: bool = False,
        return_special_tokens_mask: bool = False,
        return_overflowing_tokens: bool = False,
        return_length: bool = False,
    ) -> Encoding:
        """Encodes a text, a pair of texts, or a batch of either.

        text_target: what a translator or summariser should write, encoded by `target`. Its ids become `labels`; with
        no text beside it, it is encoded alone.
        padding: True or "longest", "max_length", False or "do_not_pad".
        truncation: True or "longest_first", "only_first", "only_second", False or "do_not_truncate". Left out,
        a max_length without padding truncates. Lengths count the special tokens.
        return_tensors: "pt" or "np"; otherwise lists. The other return_ options add keys; by default the keys are
        the tokenizer's `model_input_names`.
        """
        options = EncodeOptions(  # in the order of the signature
            add_special_tokens, padding, truncation, max_length, stride, is_split_into_words, pad_to_multiple_of,
            padding_side, return_tensors, return_token_type_ids, return_attention_mask, return_offsets_mapping,
            return_special_tokens_mask, return_overflowing_tokens, return_length,
        )  # fmt: skip
        if text_target is None:
            return encode(self, text, text_pair, options)
        labels = encode(self.target, text_target, None, options)
        if text is None:
            return labels
        encoding = encode(self, text, text_pair, options)
        encoding["labels"] = labels["input_ids"]
        return encoding

    def encode(self, text: Any, text_pair: Any = None, **options: Any) -> list[int]:
        """Only the ids. Options are those of calling the tokenizer."""
        return self(text, text_pair, **options)["input_ids"]

    def tokenize(self, text: str, pair: str | None = None, add_special_tokens: bool = False) -> list[str]:
        """The tokens as written in the vocabulary."""
        return self(text, pair, add_special_tokens=add_special_tokens).tokens()

    def units(self, text: str, pair: str | None = None) -> list[TokenUnit]:
        """The tokens of a text, or of a pair, as a person reads them: with their words and characters."""
        return units_of(self, self(text, pair), text, pair)

    def pad(
        self,
        encoded: Any,
        padding: PaddingOption = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
    ) -> Encoding:
        """Brings encoded texts to one length: a list of encodings, or one dict of lists. Made for collating."""
        check_tensors(return_tensors)
        data, tensors = columns_of(encoded)
        single = bool(data["input_ids"]) and isinstance(data["input_ids"][0], int)
        if single:
            data = {name: [value] for name, value in data.items()}
        check_rows(data)
        options = Padding.of(self, padding_strategy(padding), max_length, pad_to_multiple_of, padding_side)
        if self.returns("attention_mask", return_attention_mask) and "attention_mask" not in data:
            data["attention_mask"] = [[1] * len(row) for row in data["input_ids"]]
        if options is not None and data["input_ids"]:
            options.pad_columns(data)
        kind = return_tensors or tensors
        if single and kind is None:
            data = {name: value[0] for name, value in data.items()}
        return Encoding(as_tensors(data, kind) if kind else data)

    def returns(self, name: str, requested: bool | None) -> bool:
        """Whether an encoding has this key: as the caller says, or else where a model is called with it."""
        return name in self.model_input_names if requested is None else requested

    # ---- ids to text

    def decode(
        self,
        ids: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str:
        """The text of one id, a list of ids, or a one-dimensional tensor."""
        plain = ids_of(ids)
        try:
            text: str = self.backend.decode(plain, skip_special_tokens=skip_special_tokens)
        except (OverflowError, TypeError) as error:
            raise not_an_id(plain, len(self)) from error
        return clean_up(text) if self.cleans_up(clean_up_tokenization_spaces) else text

    def batch_decode(
        self,
        sequences: Any,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[str]:
        """The text of each row."""
        rows = sequences.tolist() if hasattr(sequences, "tolist") else sequences
        return [self.decode(row, skip_special_tokens, clean_up_tokenization_spaces) for row in rows]

    def cleans_up(self, requested: bool | None = None) -> bool:
        """Whether decoding removes the spaces before punctuation, given what the caller says."""
        if isinstance(self.backend.model, models.BPE):
            # spaces before punctuation are text here, not an artefact; `transformers` ignores the request too
            return False
        return self.clean_up_tokenization_spaces if requested is None else requested

    # ---- the other side: another language, or another vocabulary

    @property
    def target(self) -> "Tokenizer":
        """The tokenizer for what the model writes: itself, unless the target has another language or vocabulary."""
        if self._target is not None:
            return self._target
        return self if self._tgt_lang is None else self.with_src_lang(self._tgt_lang)

    def with_target(self, target: "Tokenizer") -> "Tokenizer":
        """The same tokenizer for a model that writes in another vocabulary: that of `target`."""
        other = copy.copy(self)
        other._target = target
        return other

    @property
    def separate_vocabs(self) -> bool:
        """Whether the target has a vocabulary of its own, so that ids of one are not ids of the other."""
        return self._target is not None and self._target.get_vocab() != self.get_vocab()

    @property
    def src_lang(self) -> str | None:
        """The language of the texts; its code is put around them. None where the model knows no languages."""
        return self._src_lang

    @src_lang.setter
    def src_lang(self, code: str) -> None:
        known, end = self._known_languages(), str(self.eos_token)
        self._change(lambda backend: known.wrap(backend, code, end))
        self._src_lang = code

    @property
    def tgt_lang(self) -> str | None:
        """The language to translate to."""
        return self._tgt_lang

    @tgt_lang.setter
    def tgt_lang(self, code: str | None) -> None:
        if code is not None:
            self._known_languages().token(code)
        self._tgt_lang = code

    @property
    def lang_code_to_id(self) -> dict[str, int]:
        """Every language with the id of its token."""
        known = self._known_languages()
        ids = {code: self.backend.token_to_id(known.token(code)) for code in known.codes}
        return {code: index for code, index in ids.items() if index is not None}

    def with_src_lang(self, code: str) -> "Tokenizer":
        """The same tokenizer for texts in another language."""
        other = copy.copy(self)
        other.src_lang = code
        return other

    def _known_languages(self) -> Languages:
        if self.languages is None:
            raise InputError("This tokenizer knows no languages, so src_lang and tgt_lang cannot be set.")
        return self.languages

    # ---- files

    def limited_to(self, length: int | None, target_length: int | None) -> "Tokenizer":
        """The same tokenizer for a model that reads, and writes, no more than so many tokens (None: any number)."""
        other = copy.copy(self)
        if length is not None:
            other.model_max_length = min(self.model_max_length, length)
        if self._target is not None:
            other._target = self._target.limited_to(target_length, target_length)
        return other

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes the files this library and `transformers` open; returns them. See `save_tokenizer`."""
        from clearhead.text.save import save_tokenizer  # the saver knows the tokenizer, not the other way round

        return save_tokenizer(self, folder)

    def __repr__(self) -> str:
        kind = type(self.backend.model).__name__
        return f"Tokenizer({kind}, {len(self)} tokens, special={self.special_tokens_map})"
