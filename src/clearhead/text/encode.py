"""One call of a tokenizer: texts are checked, cut into tokens, truncated, padded, and returned as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import tokenizers

from clearhead.errors import InputError
from clearhead.text.encoding import Encoding, as_tensors
from clearhead.text.inputs import explain_refusal, is_pair, rows_of
from clearhead.text.options import check_length, check_tensors
from clearhead.text.padding import Padding, PaddingOption, padding_strategy
from clearhead.text.truncation import Truncation, TruncationOption, truncation_of

if TYPE_CHECKING:
    from clearhead.text.tokenizer import Tokenizer


class EncodeOptions(NamedTuple):
    """The options of a call, by the names and in the order they have there (see `Tokenizer.__call__`)."""

    add_special_tokens: bool
    padding: PaddingOption
    truncation: TruncationOption
    max_length: int | None
    stride: int
    is_split_into_words: bool
    pad_to_multiple_of: int | None
    padding_side: str | None
    return_tensors: str | None
    return_token_type_ids: bool | None
    return_attention_mask: bool | None
    return_offsets_mapping: bool
    return_special_tokens_mask: bool
    return_overflowing_tokens: bool
    return_length: bool


def encode(tokenizer: Tokenizer, text: Any, text_pair: Any, options: EncodeOptions) -> Encoding:
    """A text, a pair of texts, or a batch of either, encoded."""
    check_tensors(options.return_tensors)
    check_length("stride", options.stride, minimum=0)
    rows, batched = rows_of(text, text_pair, options.is_split_into_words)
    strategy = padding_strategy(options.padding)
    truncation = truncation_of(
        tokenizer,
        options.truncation,
        options.max_length,
        options.stride if options.return_overflowing_tokens else 0,  # nothing else has parts that overlap
        padded=strategy != "do_not_pad",
        special_tokens=options.add_special_tokens,
        pair=any(is_pair(row, options.is_split_into_words) for row in rows),
    )
    padding = Padding.of(tokenizer, strategy, options.max_length, options.pad_to_multiple_of, options.padding_side)
    _check_multiple(padding, truncation)
    encoded = _encode_rows(tokenizer.backend_for(truncation), rows, options, truncation is not None)
    samples: list[int] = []  # which text each row comes from
    if options.return_overflowing_tokens:
        samples = [n for n, row in enumerate(encoded) for _ in range(1 + len(row.overflowing))]
        encoded = [part for row in encoded for part in (row, *row.overflowing)]
    if padding is not None:
        padding.pad_encodings(encoded)
    data = _columns(tokenizer, encoded, options)
    if options.return_overflowing_tokens:
        data["overflow_to_sample_mapping"] = samples
    if options.return_tensors is not None:
        data = as_tensors(data, options.return_tensors)
    elif not batched and not options.return_overflowing_tokens:
        data = {name: value if name == "length" else value[0] for name, value in data.items()}
    return Encoding(data, encoded)


def _encode_rows(
    backend: tokenizers.Tokenizer, rows: list[Any], options: EncodeOptions, truncated: bool
) -> list[tokenizers.Encoding]:
    try:
        return backend.encode_batch(
            rows, is_pretokenized=options.is_split_into_words, add_special_tokens=options.add_special_tokens
        )
    except TypeError:
        raise explain_refusal(rows) from None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises plain exceptions, and panics over a long stride
        hint = "Choose another truncation, a longer max_length or a shorter stride." if truncated else ""
        raise InputError(f"These texts cannot be encoded as asked: {str(error).rstrip('.')}. {hint}") from error


def _columns(tokenizer: Tokenizer, rows: list[tokenizers.Encoding], options: EncodeOptions) -> dict[str, Any]:
    data: dict[str, Any] = {"input_ids": [row.ids for row in rows]}
    if tokenizer.returns("token_type_ids", options.return_token_type_ids):
        data["token_type_ids"] = [row.type_ids for row in rows]
    if tokenizer.returns("attention_mask", options.return_attention_mask):
        data["attention_mask"] = [row.attention_mask for row in rows]
    if options.return_special_tokens_mask:
        data["special_tokens_mask"] = [row.special_tokens_mask for row in rows]
    if options.return_offsets_mapping:
        data["offset_mapping"] = [row.offsets for row in rows]
    if options.return_length:
        data["length"] = [len(row.ids) for row in rows]
    return data


def _check_multiple(padding: Padding | None, truncation: Truncation | None) -> None:
    if padding is None or truncation is None or not padding.multiple_of:
        return
    if truncation.max_length % padding.multiple_of:
        raise InputError(
            f"Texts are cut to {truncation.max_length} tokens, which is not a multiple of "
            f"pad_to_multiple_of={padding.multiple_of}. Choose a max_length that is."
        )
