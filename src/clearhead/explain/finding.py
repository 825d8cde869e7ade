"""What an explanation gives: a plain record of numbers and words that can be asserted, printed, drawn and saved.

A finding is a frozen dataclass of strings, numbers, lists and numpy arrays. How it looks is the business of `views`,
which it calls only when somebody wants to see it.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from clearhead.errors import InputError
from clearhead.files import atomic_write


class Finding:
    """The base of all findings. A subclass is a `@dataclass(frozen=True, repr=False, eq=False)`: it is shown as below,
    and arrays cannot be compared with one sign. It says:

    kind    the name of the view that draws it
    table   its rows for a spreadsheet, the first one the names of the columns
    """

    kind: ClassVar[str]

    def table(self) -> Iterator[Iterable[Any]]:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain lists, numbers and strings: what JSON can hold."""
        return {"kind": self.kind, **plain(self)}

    def to_csv(self) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(self.table())
        return out.getvalue()

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """One file, by its ending: .html (a picture that works offline), .json or .csv. Whole, or not at all."""
        target = Path(path).expanduser()
        writers = {".html": self._page, ".json": lambda: json.dumps(self.to_dict(), ensure_ascii=False),
                ".csv": self.to_csv}  # fmt: skip
        if target.suffix.lower() not in writers:
            raise InputError(f"A finding is saved as .html, .json or .csv, not as {target.name!r}.")
        if target.exists() and not overwrite:
            raise InputError(f"{target} is there already. Choose another name, or pass overwrite=True to replace it.")
        text = writers[target.suffix.lower()]()
        atomic_write(target, text.encode("utf-8"), InputError)
        return target

    def widget(self, lang: str = "en") -> Any:
        """The picture as a notebook widget (needs anywidget): what is pinned is `.state`, to Python and back."""
        from clearhead.views.widget import widget

        return widget(self, lang)

    def _page(self) -> str:
        from clearhead.views.page import page  # a finding draws itself when it is asked to, and only then

        return page(self)

    def _repr_html_(self) -> str:
        from clearhead.views.page import fragment

        return fragment(self)

    def __rich__(self) -> Any:
        from clearhead.views.terminal import drawn

        return drawn(self)

    def __repr__(self) -> str:
        """What a terminal shows: the picture, in its colours where it has any."""
        from clearhead.views.terminal import text_of

        return text_of(self)


def plain(value: Any) -> Any:
    """As JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, np.ndarray):
        return _finite(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _finite(array: np.ndarray) -> Any:
    """Lists of numbers; what is no number (hidden, undefined) becomes None, as JSON has no word for it."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    plain = array.astype(object)
    plain[~np.isfinite(array)] = None
    return plain.tolist()
