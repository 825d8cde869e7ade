"""Padding: rows of tokens are brought to one length, while they are encoded or afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import tokenizers

from clearhead.errors import InputError
from clearhead.text.options import ANY_LENGTH, check_choice, check_length, side_of

if TYPE_CHECKING:
    from clearhead.text.tokenizer import Tokenizer

PaddingOption = bool | str
_STRATEGIES = ("longest", "max_length", "do_not_pad")


class Padding(NamedTuple):
    """One way to pad.

    length        the fixed length to pad to; None for that of the longest row
    multiple_of   lengths are rounded up to the next multiple
    type_id       the segment of padding
    """

    length: int | None
    multiple_of: int | None
    side: Literal["right", "left"]
    token: str
    token_id: int
    type_id: int

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        strategy: str,
        max_length: int | None,
        multiple_of: int | None,
        side: str | None,
    ) -> Padding | None:
        """How the options of a call mean to pad; None where they don't."""
        check_length("pad_to_multiple_of", multiple_of, minimum=1)
        if strategy == "do_not_pad":
            return None
        token_id = tokenizer.required_pad_id()
        check_length("max_length", max_length, minimum=1)
        length = None
        if strategy == "max_length":
            length = tokenizer.model_max_length if max_length is None else max_length
            if length >= ANY_LENGTH:
                raise InputError(
                    'padding="max_length" needs a length, and this tokenizer has no model_max_length. '
                    "Pass max_length=…, or use padding=True for the longest text of the batch."
                )
        checked = side_of(side or tokenizer.padding_side, "padding_side")
        return cls(length, multiple_of, checked, str(tokenizer.pad_token), token_id, tokenizer.pad_token_type_id)

    def pad_encodings(self, rows: Iterable[tokenizers.Encoding]) -> None:
        """Pads rows of a call in place; they belong to nobody else."""
        rows = list(rows)
        length = self._length(len(row) for row in rows)
        for row in rows:
            row.pad(length, direction=self.side, pad_id=self.token_id, pad_type_id=self.type_id, pad_token=self.token)

    def pad_columns(self, data: dict[str, Any]) -> None:
        """Pads every column that has a value for each token; others, such as a label, stay as they are."""
        length = self._length(map(len, data["input_ids"]))
        fillers = {
            "input_ids": self.token_id,
            "attention_mask": 0,
            "token_type_ids": self.type_id,
            "special_tokens_mask": 1,
            "offset_mapping": (0, 0),
        }
        for name in data.keys() & fillers.keys():
            padded = []
            for row in data[name]:
                missing = [fillers[name]] * (length - len(row))
                padded.append([*missing, *row] if self.side == "left" else [*row, *missing])
            data[name] = padded

    def _length(self, lengths: Iterable[int]) -> int:
        length = self.length or max(lengths, default=0)
        return -(-length // self.multiple_of) * self.multiple_of if self.multiple_of else length


def padding_strategy(option: PaddingOption) -> str:
    """The padding by its full name."""
    if isinstance(option, bool):
        option = "longest" if option else "do_not_pad"
    check_choice("padding", option, _STRATEGIES)
    return option


def columns_of(encoded: Any) -> tuple[dict[str, Any], str | None]:
    """One dict of lists, and the kind of tensor the values were."""
    if isinstance(encoded, list | tuple):
        if not encoded or not all(isinstance(item, Mapping) for item in encoded):
            raise InputError("pad takes encodings: a list of dicts, or one dict of lists. The list holds none.")
        other = [n for n, item in enumerate(encoded) if item.keys() != encoded[0].keys()]
        if other:
            raise InputError(f"Every encoding must have the same keys, but number {other[0]} differs from the first.")
        encoded = {name: [item[name] for item in encoded] for name in encoded[0]}
    if not isinstance(encoded, Mapping) or "input_ids" not in encoded:
        raise InputError("pad takes encodings: a list of dicts, or one dict of lists, with input_ids in it.")
    ids = encoded["input_ids"]
    sample = ids[0] if isinstance(ids, list | tuple) and ids else ids
    tensors = ("pt" if hasattr(sample, "to") else "np") if hasattr(sample, "tolist") else None
    return {name: _as_lists(value) for name, value in encoded.items()}, tensors


def check_rows(data: Mapping[str, Any]) -> None:
    """Refuses columns that do not have a value for each row."""
    if len({len(value) for value in data.values()}) > 1:
        counts = ", ".join(f"{name} {len(value)}" for name, value in data.items())
        raise InputError(f"Every key must have the same number of rows, but there are {counts}.")


def _as_lists(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_as_lists(item) for item in value] if isinstance(value, list) else value
