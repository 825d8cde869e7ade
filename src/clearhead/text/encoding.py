"""What a tokenizer returns: a dict of ids and masks that also knows which token came from which characters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers

from clearhead.errors import InputError, did_you_mean


class Encoding(dict[str, Any]):
    """`encoding["input_ids"]` or `encoding.input_ids`; pass it to a model as `model(**encoding)`.

    The methods below take the row they are about, which is 0 where a single text was encoded.
    """

    def __init__(self, data: Mapping[str, Any], rows: Sequence[tokenizers.Encoding] = ()) -> None:
        super().__init__(data)
        self._rows = tuple(rows)

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(
            f"This encoding has no {name}; it has {', '.join(map(str, self))}.{did_you_mean(name, map(str, self))}"
        )

    def to(self, device: Any) -> "Encoding":
        """Moves every tensor to the device, in place, and returns the encoding."""
        if not hasattr(self.get("input_ids"), "to"):
            raise InputError('Only tensors can be moved to a device. Encode with return_tensors="pt" first.')
        for name, value in self.items():
            if hasattr(value, "to"):
                self[name] = value.to(device)
        return self

    def tokens(self, row: int = 0) -> list[str]:
        """The tokens as written in the vocabulary."""
        return list(self._row(row).tokens)

    def offsets(self, row: int = 0) -> list[tuple[int, int]]:
        """For each token, where its characters start and end in the text; (0, 0) for added special tokens."""
        return list(self._row(row).offsets)

    def word_ids(self, row: int = 0) -> list[int | None]:
        """For each token, which word it is part of; None for special tokens."""
        return list(self._row(row).word_ids)

    def sequence_ids(self, row: int = 0) -> list[int | None]:
        """For each token, 0 for the first text, 1 for the second, None for special tokens."""
        return list(self._row(row).sequence_ids)

    def char_to_token(self, row_or_char: int, char: int | None = None, sequence_index: int = 0) -> int | None:
        """The token that covers a character; None where no token does. With one text the row can be left out."""
        row, index = (0, row_or_char) if char is None else (row_or_char, char)
        return self._row(row).char_to_token(index, sequence_index)

    def token_to_chars(self, row_or_token: int, token: int | None = None) -> tuple[int, int] | None:
        """Where a token's characters start and end; None for special tokens. With one text leave out the row."""
        row, index = (0, row_or_token) if token is None else (row_or_token, token)
        return self._row(row).token_to_chars(index)

    def _row(self, index: int) -> tokenizers.Encoding:
        if not self._rows:
            raise InputError(
                "This encoding holds numbers only, so tokens cannot be traced back to text. "
                "Ask the encoding that the tokenizer returned for that text."
            )
        if not -len(self._rows) <= index < len(self._rows):
            raise InputError(f"There is no row {index}: this encoding has {len(self._rows)}.")
        return self._rows[index]


def as_tensors(data: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The same values as arrays ("np") or PyTorch tensors ("pt")."""
    arrays = {name: _as_array(name, value) for name, value in data.items()}
    if kind == "np":
        return arrays
    import torch  # heavy, and not needed to tokenize

    return {
        name: torch.from_numpy(value.astype(np.float32) if value.dtype == np.float64 else value)
        for name, value in arrays.items()
    }


def _as_array(name: str, value: Any) -> np.ndarray:
    lengths = {len(item) for item in value if isinstance(item, list)}
    if len(lengths) > 1:
        raise InputError(
            f"{name} cannot become one tensor: its rows have {min(lengths)} to {max(lengths)} entries. "
            "Encode with padding=True, and with truncation=True where texts are too long."
        )
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} cannot become a tensor: {error}.") from error
    if array.dtype.kind not in "iufb" and array.size:
        raise InputError(f"{name} cannot become a tensor: it holds more than numbers.")
    return array.astype(np.int64) if array.dtype.kind in "iu" or not array.size else array
