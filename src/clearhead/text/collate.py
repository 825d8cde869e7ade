"""Brings texts that are already encoded to one length."""

from collections.abc import Mapping
from typing import Any

from clearhead.errors import InputError


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
    return {name: _lists(value) for name, value in encoded.items()}, tensors


def check_rows(data: Mapping[str, Any]) -> None:
    """Refuses columns that do not have a value for each row."""
    if len({len(value) for value in data.values()}) > 1:
        counts = ", ".join(f"{name} {len(value)}" for name, value in data.items())
        raise InputError(f"Every key must have the same number of rows, but there are {counts}.")


def fill(data: dict[str, Any], length: int, pad_id: int, pad_type: int, left: bool) -> None:
    """Fills every column that has a value for each token; others, such as a label, stay as they are."""
    values = {
        "input_ids": pad_id,
        "attention_mask": 0,
        "token_type_ids": pad_type,
        "special_tokens_mask": 1,
        "offset_mapping": (0, 0),
    }
    for name in data.keys() & values.keys():
        filled = []
        for row in data[name]:
            missing = [values[name]] * (length - len(row))
            filled.append([*missing, *row] if left else [*row, *missing])
        data[name] = filled


def _lists(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return [_lists(item) for item in value] if isinstance(value, list) else value
