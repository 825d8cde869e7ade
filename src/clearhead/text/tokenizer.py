"""The tokenizer: text to ids and back, called the way `transformers` users are used to."""

import copy
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import tokenizers
from tokenizers import AddedToken, models

from clearhead.errors import InputError, TokenizerError, did_you_mean
from clearhead.text.backend import Backend, Cut, SourceFiles, copy_of
from clearhead.text.cleanup import clean_up
from clearhead.text.collate import check_rows, columns_of, fill
from clearhead.text.encoding import Encoding, as_tensors
from clearhead.text.ids import ids_of, not_an_id
from clearhead.text.inputs import explain_refusal, is_pair, rows_of
from clearhead.text.languages import Languages
from clearhead.text.options import (
    ANY_LENGTH,
    Padding,
    Truncation,
    check_length,
    check_tensors,
    longest_length,
    padding_of,
    round_up,
    side_of,
    truncation_of,
)
from clearhead.text.readable import is_byte_level, readable
from clearhead.text.special import EXTRAS, NAMES, content_of
from clearhead.text.units import units_of
from clearhead.units import TokenUnit

_TEXTS = ("text", "text_pair", "text_target")  # the arguments of a call that are not options


class _SpecialToken:
    """A named special token: `tok.pad_token`, settable."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, tokenizer: "Tokenizer", owner: type | None = None) -> str | None:
        return tokenizer._named.get(self.name)

    def __set__(self, tokenizer: "Tokenizer", value: str | AddedToken | None) -> None:
        tokenizer._set_named(self.name, value)


class _SpecialTokenId:
    """The id of a named special token: `tok.pad_token_id`, settable."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.removesuffix("_id")

    def __get__(self, tokenizer: "Tokenizer", owner: type | None = None) -> int | None:
        token = tokenizer._named.get(self.name)
        return None if token is None else tokenizer.backend.token_to_id(token)

    def __set__(self, tokenizer: "Tokenizer", value: int | None) -> None:
        tokenizer._set_named(self.name, None if value is None else tokenizer.convert_ids_to_tokens(value))


class Tokenizer:
    """Text to ids and back.

    Open one with `load_tokenizer` or `train_tokenizer`. Any number of threads may use it at once.
    """

    bos_token = _SpecialToken()
    eos_token = _SpecialToken()
    unk_token = _SpecialToken()
    sep_token = _SpecialToken()
    pad_token = _SpecialToken()
    cls_token = _SpecialToken()
    mask_token = _SpecialToken()
    bos_token_id = _SpecialTokenId()
    eos_token_id = _SpecialTokenId()
    unk_token_id = _SpecialTokenId()
    sep_token_id = _SpecialTokenId()
    pad_token_id = _SpecialTokenId()
    cls_token_id = _SpecialTokenId()
    mask_token_id = _SpecialTokenId()

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
        self.config: dict[str, Any] = dict(config or {})
        self.saved_class = saved_class
        self.source_files: SourceFiles | None = None  # where the wrapped library cannot write the backend down
        # kept only to be written back: calls say for themselves how they pad and truncate
        self.file_padding, self.file_truncation = backend.padding, backend.truncation
        self._backend = Backend(copy_of(backend))
        self._changing = threading.Lock()
        self._extra = list(dict.fromkeys(extra))
        self._named: dict[str, str] = {}
        for name, token in (named or {}).items():
            self._set_named(name, token)
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
        padding: Padding = False,
        truncation: Truncation = None,
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
        if text_target is not None:
            options = {name: value for name, value in locals().items() if name not in ("self", *_TEXTS)}
            target_encoding = self.target(text_target, **options)
            if text is None:
                return target_encoding
            encoding = self(text, text_pair, **options)
            encoding["labels"] = target_encoding["input_ids"]
            return encoding
        check_tensors(return_tensors)
        check_length("stride", stride, least=0)
        rows, batched = rows_of(text, text_pair, is_split_into_words)
        pad = padding_of(padding)
        pairs = any(is_pair(row, is_split_into_words) for row in rows)
        step = stride if return_overflowing_tokens else 0  # it says how the pieces cut off overlap, nothing else
        cut = self._cut(truncation, pad, max_length, step, add_special_tokens, pairs)
        target = self._pad_target(pad, max_length)
        self._check_multiple(pad_to_multiple_of, pad, cut)
        backend = self._backend.plain if cut is None else self._backend.cutting(cut)
        try:
            found = backend.encode_batch(
                rows, is_pretokenized=is_split_into_words, add_special_tokens=add_special_tokens
            )
        except TypeError:
            raise explain_refusal(rows) from None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises plain exceptions, and panics over a long stride
            hint = "Choose another truncation, a longer max_length or a shorter stride." if cut else ""
            raise InputError(f"These texts cannot be encoded as asked: {str(error).rstrip('.')}. {hint}") from error

        sources = list(range(len(found)))
        if return_overflowing_tokens:
            sources = [n for n, row in enumerate(found) for _ in range(1 + len(row.overflowing))]
            found = [piece for row in found for piece in (row, *row.overflowing)]
        if pad != "do_not_pad":
            self._pad_rows(found, target, pad_to_multiple_of, padding_side)

        data: dict[str, Any] = {"input_ids": [row.ids for row in found]}
        if self._wants("token_type_ids", return_token_type_ids):
            data["token_type_ids"] = [row.type_ids for row in found]
        if self._wants("attention_mask", return_attention_mask):
            data["attention_mask"] = [row.attention_mask for row in found]
        if return_special_tokens_mask:
            data["special_tokens_mask"] = [row.special_tokens_mask for row in found]
        if return_offsets_mapping:
            data["offset_mapping"] = [row.offsets for row in found]
        if return_length:
            data["length"] = [len(row.ids) for row in found]
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = sources
        if return_tensors is not None:
            data = as_tensors(data, return_tensors)
        elif not batched and not return_overflowing_tokens:
            data = {name: value if name == "length" else value[0] for name, value in data.items()}
        return Encoding(data, found)

    def encode(self, text: Any, text_pair: Any = None, **options: Any) -> list[int]:
        """Only the ids. Options are those of calling the tokenizer."""
        return self(text, text_pair, **options)["input_ids"]

    def tokenize(self, text: str, pair: str | None = None, add_special_tokens: bool = False) -> list[str]:
        """The tokens as written in the vocabulary."""
        return self(text, pair, add_special_tokens=add_special_tokens).tokens()

    def units(self, text: str, pair: str | None = None) -> list[TokenUnit]:
        """The tokens of a text, or of a pair, as a person reads them: with their words and characters."""
        return units_of(self, self(text, pair), text, pair)

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """How many special tokens encoding puts around a text, or around a pair."""
        return self.backend.num_special_tokens_to_add(pair)

    def pad(
        self,
        encoded: Any,
        padding: Padding = True,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: str | None = None,
    ) -> Encoding:
        """Brings encoded texts to one length: a list of encodings, or one dict of lists. Made for collating."""
        check_tensors(return_tensors)
        data, tensors = columns_of(encoded)
        ids = data["input_ids"]
        single = bool(ids) and isinstance(ids[0], int)
        if single:
            data = {name: [value] for name, value in data.items()}
            ids = data["input_ids"]
        check_rows(data)
        pad = padding_of(padding)
        target = self._pad_target(pad, max_length)
        self._check_multiple(pad_to_multiple_of, pad, None)
        if self._wants("attention_mask", return_attention_mask) and "attention_mask" not in data:
            data["attention_mask"] = [[1] * len(row) for row in ids]
        if pad != "do_not_pad" and ids:
            length = round_up(target or max(map(len, ids)), pad_to_multiple_of)
            side = side_of(padding_side or self.padding_side, "padding_side")
            fill(data, length, self._pad_id(), self.pad_token_type_id, left=side == "left")
        kind = return_tensors or tensors
        if single and kind is None:
            data = {name: value[0] for name, value in data.items()}
        return Encoding(as_tensors(data, kind) if kind else data)

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

    def cleans_up(self, asked: bool | None = None) -> bool:
        """Whether decoding removes the spaces before punctuation, given what the caller asked for."""
        if isinstance(self.backend.model, models.BPE):
            # spaces before punctuation are text here, not an artefact; `transformers` ignores the request too
            return False
        return self.clean_up_tokenization_spaces if asked is None else asked

    # ---- the vocabulary

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The wrapped tokenizer. Read it, but do not change it: other threads may be using it."""
        return self._backend.plain

    @property
    def vocab_size(self) -> int:
        """How many tokens the vocabulary has without added tokens. `len(tok)` counts those too."""
        return self.backend.get_vocab_size(with_added_tokens=False)

    def __len__(self) -> int:
        return self.backend.get_vocab_size(with_added_tokens=True)

    def __bool__(self) -> bool:
        return True  # `if tokenizer` asks whether there is one, not whether it has tokens

    def get_vocab(self) -> dict[str, int]:
        """Every token with its id, added tokens too."""
        return self.backend.get_vocab(with_added_tokens=True)

    @overload
    def convert_tokens_to_ids(self, tokens: str) -> int | None: ...
    @overload
    def convert_tokens_to_ids(self, tokens: list[str] | tuple[str, ...]) -> list[int | None]: ...
    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> int | list[int | None] | None:
        """The id of a token, or of each; that of the unknown token where it is not in the vocabulary."""
        if isinstance(tokens, str):
            found = self.backend.token_to_id(tokens)
            return self.unk_token_id if found is None else found
        return [self.convert_tokens_to_ids(token) for token in tokens]

    @overload
    def convert_ids_to_tokens(self, ids: int, skip_special_tokens: bool = False) -> str: ...
    @overload
    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> list[str]: ...
    def convert_ids_to_tokens(self, ids: Any, skip_special_tokens: bool = False) -> str | list[str]:
        """The token of an id, or of each."""
        plain, backend, one = ids_of(ids), self.backend, isinstance(ids, int)
        skipped = set(self.all_special_ids) if skip_special_tokens and not one else set()
        found = []
        for index in plain:
            if index in skipped:
                continue
            try:
                token = backend.id_to_token(index)
            except (OverflowError, TypeError):
                token = None
            if token is None:
                raise not_an_id([index], len(self))
            found.append(token)
        return found[0] if one else found

    def readable(self, ids: Any) -> list[str]:
        """The tokens as a person reads them: `Ġrobot` is " robot", half a character its bytes.

        A model may score more ids than its tokenizer has words (T5 does); those show as `<no token N>`.
        """
        backend, byte_level, special = self.backend, is_byte_level(self.backend), set(self.all_special_ids)
        shown = []
        for n in ids_of(ids):
            token = backend.id_to_token(n) if n >= 0 else None
            missing = f"<no token {n}>"
            shown.append(missing if token is None else token if n in special else readable(token, byte_level))
        return shown

    def add_tokens(
        self, new_tokens: str | AddedToken | Sequence[str | AddedToken], special_tokens: bool = False
    ) -> int:
        """Adds tokens that are never split, and returns how many. A model's embedding must grow with them."""
        wanted = list(new_tokens) if isinstance(new_tokens, list | tuple) else [new_tokens]
        for token in wanted:
            if not isinstance(token, str | AddedToken) or not content_of(token):
                raise InputError(f"A new token must be a string that is not empty, but one is {token!r}.")
        with self._changing:
            changed = copy_of(self._backend.plain)
            count: int = (changed.add_special_tokens if special_tokens else changed.add_tokens)(wanted)
            self._backend = Backend(changed)
        return count

    # ---- special tokens

    def add_special_tokens(
        self,
        special_tokens_dict: Mapping[str, Any],
        replace_extra_special_tokens: bool = True,
    ) -> int:
        """Names special tokens, adding those the vocabulary lacks; returns how many were added.

        Keys are bos_token, eos_token, …, and extra_special_tokens (or additional_special_tokens) for a list.
        """
        for key in special_tokens_dict:
            if key not in (*NAMES, *EXTRAS):
                raise InputError(
                    f"{key} is not a special token; the names are {', '.join((*NAMES, *EXTRAS))}."
                    + did_you_mean(key, (*NAMES, *EXTRAS))
                )
        count = 0
        for key, value in special_tokens_dict.items():
            tokens = list(value) if key in EXTRAS else [value]
            for token in tokens:
                if not content_of(token):
                    raise InputError(f"{key} must be a string that is not empty, but it is {token!r}.")
            count += self.add_tokens(tokens, special_tokens=True)
            if key in NAMES:
                self._set_named(key, value)
            else:
                kept = [] if replace_extra_special_tokens else self._extra
                self._extra = list(dict.fromkeys([*kept, *filter(None, map(content_of, tokens))]))
        return count

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The named special tokens that are set."""
        return {name: self._named[name] for name in NAMES if name in self._named}

    @property
    def extra_special_tokens(self) -> list[str]:
        """Special tokens without one of the seven names."""
        return list(self._extra)

    @property
    def additional_special_tokens(self) -> list[str]:
        """The older name of extra_special_tokens."""
        return list(self._extra)

    @property
    def all_special_tokens(self) -> list[str]:
        """Every special token, each once."""
        return list(dict.fromkeys([*self.special_tokens_map.values(), *self._extra]))

    @property
    def all_special_ids(self) -> list[int]:
        """The ids of every special token."""
        found = (self.backend.token_to_id(token) for token in self.all_special_tokens)
        return [index for index in found if index is not None]

    # ---- languages, for translators

    @property
    def src_lang(self) -> str | None:
        """The language of the texts; its code is put around them. None where the model knows no languages."""
        return self._src_lang

    @src_lang.setter
    def src_lang(self, code: str) -> None:
        known = self._known_languages()
        with self._changing:
            changed = copy_of(self._backend.plain)
            known.wrap(changed, code, str(self.eos_token))
            self._backend = Backend(changed)
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
        found = {code: self.backend.token_to_id(token) for code, token in self._language_tokens().items()}
        return {code: index for code, index in found.items() if index is not None}

    def with_src_lang(self, code: str) -> "Tokenizer":
        """The same tokenizer for texts in another language."""
        other = copy.copy(self)
        other.src_lang = code
        return other

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

    def _known_languages(self) -> Languages:
        if self.languages is None:
            raise InputError("This tokenizer knows no languages, so src_lang and tgt_lang cannot be set.")
        return self.languages

    def _language_tokens(self) -> dict[str, str]:
        known = self._known_languages()
        return dict(zip(known.codes, known.tokens(), strict=True))

    # ---- files

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes the files this library and `transformers` open; returns them. See `save_tokenizer`."""
        from clearhead.text.save import save_tokenizer  # the saver knows the tokenizer, not the other way round

        return save_tokenizer(self, folder)

    def __getstate__(self) -> dict[str, Any]:
        """For pickling and copying, as data loaders do: locks stay behind."""
        state = self.__dict__.copy()
        del state["_changing"]
        state["_backend"] = self.backend if self.source_files is None else self.backend.get_added_tokens_decoder()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        backend = state["_backend"]
        if self.source_files is not None:
            added, backend = backend, self.source_files.build()
            backend.add_tokens([added[index] for index in sorted(added)])
        self._backend = Backend(backend)
        self._changing = threading.Lock()

    def __repr__(self) -> str:
        kind = type(self.backend.model).__name__
        return f"Tokenizer({kind}, {len(self)} tokens, special={self.special_tokens_map})"

    # ---- how the calls above work

    def _wants(self, name: str, asked: bool | None) -> bool:
        return name in self.model_input_names if asked is None else asked

    def _set_named(self, name: str, value: str | AddedToken | None) -> None:
        if value is None:
            self._named.pop(name, None)
            return
        token = content_of(value)
        if token is None or self.backend.token_to_id(token) is None:
            close = did_you_mean(token, self.all_special_tokens) if token else ""
            raise TokenizerError(
                f"{name} cannot be {value!r}: the vocabulary does not have it.{close} "
                f'Add it with tok.add_special_tokens({{"{name}": …}}) and let the model\'s embedding grow by one.'
            )
        self._named[name] = token

    def _cut(
        self, truncation: Truncation, pad: str, length: int | None, stride: int, special: bool, pair: bool
    ) -> Cut | None:
        """How to truncate; None where nothing is cut."""
        strategy = truncation_of(truncation, pad, length)
        check_length("max_length", length, least=1)
        if length is None:
            length = self.model_max_length
        if strategy == "do_not_truncate" or length >= ANY_LENGTH:
            return None
        room = length - (self.num_special_tokens_to_add(pair) if special else 0)
        if room < 0:
            raise InputError(
                f"max_length={length} leaves no room: this tokenizer adds {length - room} special tokens. "
                "Ask for a longer max_length, or for add_special_tokens=False."
            )
        if stride and stride >= room:
            raise InputError(
                f"stride={stride} must be smaller than the {room} tokens that max_length={length} leaves for text."
            )
        return Cut(length, stride, strategy, side_of(self.truncation_side, "truncation_side"))

    def _pad_target(self, pad: str, length: int | None) -> int | None:
        """The fixed length to pad to; None to pad to the longest row."""
        if pad == "do_not_pad":
            return None
        self._pad_id()
        check_length("max_length", length, least=1)
        if pad == "longest":
            return None
        length = self.model_max_length if length is None else length
        if length >= ANY_LENGTH:
            raise InputError(
                'padding="max_length" needs a length, and this tokenizer has no model_max_length. '
                "Pass max_length=…, or use padding=True for the longest text of the batch."
            )
        return length

    def _pad_id(self) -> int:
        found = self.pad_token_id
        if found is None:
            raise TokenizerError(
                "This tokenizer has no padding token, so texts cannot be padded. Choose one of its tokens "
                '(tok.pad_token = tok.eos_token), or add one (tok.add_special_tokens({"pad_token": "[PAD]"})).'
            )
        return found

    def _pad_rows(
        self, rows: list[tokenizers.Encoding], target: int | None, multiple: int | None, side: str | None
    ) -> None:
        """Pads the rows of this call; they belong to nobody else."""
        length = round_up(target or max((len(row) for row in rows), default=0), multiple)
        side, pad_id, pad_token = side_of(side or self.padding_side, "padding_side"), self._pad_id(), self.pad_token
        for row in rows:
            row.pad(length, direction=side, pad_id=pad_id, pad_type_id=self.pad_token_type_id, pad_token=pad_token)

    def _check_multiple(self, multiple: int | None, pad: str, cut: Cut | None) -> None:
        check_length("pad_to_multiple_of", multiple, least=1)
        if multiple and pad != "do_not_pad" and cut is not None and cut.max_length % multiple:
            raise InputError(
                f"Texts are cut to {cut.max_length} tokens, which is not a multiple of pad_to_multiple_of={multiple}. "
                "Choose a max_length that is."
            )
