"""What a recipe may say about a source of data, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from clearhead.errors import InputError, did_you_mean
from clearhead.schema import Field, build, fields_of
from clearhead.train.data.formats import READERS, FileOptions

FORMATS = (
    {name: name for name in READERS}
    | {"txt": "text", "squad": "json"}
    | {name: name for name in ("parallel", "pictures")}
)
_TABLE = ("separator", "header", "quoted")
MEANT_FOR = {"text": ("documents",), "json": ("key",), "csv": _TABLE, "tsv": _TABLE, "conll": ("separator", "strip")}


@dataclass(frozen=True)
class SourceOptions(FileOptions):
    """All that a recipe may say about a source; `FileOptions` has what concerns a single file.

    path                a file, a folder, a pattern with *, or a list of those
    format              text, jsonl, json (squad), csv, tsv, conll, parallel or pictures (train/data/pictures.py); by
                        default from the file's ending
    source, target      two files whose lines belong together, in place of `path`
    dataset             a public data set, in place of `path`; its config, split and revision
    limit               so many records and no more
    skip_empty          leave out records without any text, and pairs of which one side has none
    part, validation_fraction   "train" or "valid": all but this fraction of the records, or this fraction
    """

    path: Any = None
    format: str | None = None
    source: Any = None
    target: Any = None
    dataset: str | None = None
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    limit: Annotated[int | None, Field(least=1)] = None
    skip_empty: bool = True
    part: Literal["train", "valid"] | None = None
    validation_fraction: Annotated[float, Field(least=0, below=1)] = 0.0


def read_options(spec: Any, defaults: Mapping[str, Any]) -> tuple[SourceOptions, list[str]]:
    """The options of a path, a list of paths, `hf:name`, or a table; and the keys that it sets itself."""
    table = dict(spec) if isinstance(spec, Mapping) else {"path": spec}
    if isinstance(table.get("path"), str) and table["path"].startswith("hf:"):
        table["dataset"] = table.pop("path").removeprefix("hf:")
    known = fields_of(SourceOptions)
    for key in (*table, *defaults):
        if key not in known:
            raise InputError(
                f"Data has no option {key!r}.{did_you_mean(str(key), known)} There is: {', '.join(known)}."
            )
    own_keys = [key for key, value in table.items() if value is not None]
    table = {key: value for key, value in (dict(defaults) | table).items() if value is not None}
    columns = table.get("columns", {})
    if isinstance(columns, list):
        table["columns"] = {name: n for n, name in enumerate(columns) if name}
    elif not isinstance(columns, dict) or not all(isinstance(theirs, str | int) for theirs in columns.values()):
        raise InputError(
            f"columns must say our names and theirs, such as {{text: sentence, label: 1}}, not {columns!r}."
        )
    options = build(SourceOptions, table)
    _check(options)
    return options, own_keys


def check_use(own_keys: Sequence[str], format: str) -> None:
    """What a source says of itself must mean something for its format; what holds for all of a recipe's may not."""
    for key in own_keys:
        formats = [name for name, keys in MEANT_FOR.items() if key in keys]
        if formats and format not in formats:
            raise InputError(f"{key} is for data in the format {' or '.join(formats)}; this is {format}. Leave it out.")


def _check(options: SourceOptions) -> None:
    if sum(value is not None for value in (options.path, options.source, options.dataset)) != 1:
        raise InputError("Say where the data is in one way: a path, a source with its target, or a dataset.")
    if (options.source is None) != (options.target is None):
        raise InputError("Parallel data needs both source and target, the two files whose lines belong together.")
    if options.dataset is None and (options.config, options.split, options.revision) != (None, "train", None):
        raise InputError("config, split and revision are those of a public data set (hf:name); a file has none.")
    if options.format is not None and options.format not in FORMATS:
        raise InputError(
            f"{options.format!r} is not a format.{did_you_mean(options.format, FORMATS)} "
            f"There is: {', '.join(FORMATS)}."
        )
    if (options.part is None) != (options.validation_fraction == 0):
        raise InputError("part and validation_fraction go together: part: train (or valid), validation_fraction: 0.01.")
    if not options.documents:
        raise InputError('documents must be "file", "lines", "blank-lines" or the words that part two documents.')
