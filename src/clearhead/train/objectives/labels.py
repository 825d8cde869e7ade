"""Names of classes and their numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from clearhead.errors import InputError, did_you_mean
from clearhead.train.data.types import Record
from clearhead.train.objectives.fields import place, shown


class Labels:
    """Names of classes and their numbers: learned from the training data, or given in the order they should have.

    A whole number is named by its digits. Names are in alphabetical order; if all are whole numbers, in theirs.
    Where none of the names is a number, data may say 0, 1, … instead: the place in the list.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._set(list(names))
        if len(self._numbers) < len(self.names):
            twice = next(name for n, name in enumerate(self.names) if self._numbers[name] != n)
            raise InputError(f"The label {twice!r} stands twice in the list: each class has a name of its own.")

    def _set(self, names: list[str]) -> None:
        self.names, self._numbers = names, {name: n for n, name in enumerate(names)}

    def learn(self, names: Iterable[str], first: str | None = None) -> None:
        """first: a name that comes before all others (the "outside" of taggers)."""
        unique = set(names)
        if not unique:
            raise InputError("The training data holds no label. Is the file empty, or the column another one?")
        all_numbers = all(_is_whole(name) for name in unique)
        self._set(sorted(unique, key=lambda name: (name != first, int(name) if all_numbers else 0, name)))

    @staticmethod
    def name(record: Record, column: str, value: Any) -> str:
        """How a label is called; an error with the place where it cannot be one."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, float):
            raise InputError(
                f"{place(record)}: {column} is {value}, a number with a fraction. To learn numbers rather than "
                "classes, set problem_type=regression."
            )
        if value is None or isinstance(value, list | tuple | dict) or not str(value).strip():
            raise InputError(f"{place(record)}: {column} must be a label, but it is {shown(value)}.")
        return str(value).strip()

    def number(self, record: Record, column: str, value: Any) -> int:
        name = self.name(record, column, value)
        if self._is_place(name):
            return int(name)
        if name not in self._numbers:
            known = self._some() or "none yet: learn_labels comes first"
            raise InputError(
                f"{place(record)}: the label {name!r} does not occur in the training data."
                f"{did_you_mean(name, self.names)} Known labels: {known}. "
                "Where it is right, name all labels: objective.labels=[…]."
            )
        return self._numbers[name]

    def check(self, names: Iterable[str], where: str) -> None:
        """An error that names all those that are none of these labels, and how often each occurs.

        where   what they were read from
        """
        unknown = Counter(name for name in names if not self._is_known(name))
        if unknown:
            counts = ", ".join(f"{name!r} ({count:,} ×)" for name, count in unknown.most_common(10))
            more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
            header = " Is it the header? Then name the columns by it: data.columns.text=… data.columns.label=…"
            raise InputError(
                f"{where} has labels that the model does not know: {counts}{more}. It knows: {self._some()}. Rename "
                "them, leave those records out, or name the column that is meant: data.columns.label=…"
                f"{header if unknown.total() == 1 else ''}"
            )

    def _is_known(self, name: str) -> bool:
        return name in self._numbers or self._is_place(name)

    def _is_place(self, name: str) -> bool:
        """Whether it is a number that stands for the name at that place."""
        return name.isdecimal() and int(name) < len(self) and not any(map(_is_whole, self.names))

    def _some(self) -> str:
        return ", ".join(self.names[:20]) + (", …" if len(self.names) > 20 else "")

    def notes(self, numbers: Collection[int]) -> list[str]:
        """What to say of training data in which these labels occur, by their numbers."""
        if len(numbers) == 1:
            name = self.names[next(iter(numbers))]
            return [
                f"All of the training data has the label {name!r}: there is nothing to tell apart. The model will "
                "always say it, and what is measured means nothing. Is it the right column, and the whole file?"
            ]
        missing = [name for n, name in enumerate(self.names) if n not in numbers]
        if missing:
            return [f"No training example has the label {', '.join(map(repr, missing[:10]))}: it cannot be learnt."]
        return []

    def __len__(self) -> int:
        return len(self.names)

    def configure(self, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration with these labels in it."""
        names = {"id2label": {str(n): name for n, name in enumerate(self.names)}, "label2id": dict(self._numbers)}
        return {**config, **names, "num_labels": len(self)}


def _is_whole(name: str) -> bool:
    return name.removeprefix("-").isdecimal()
