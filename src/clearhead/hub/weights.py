"""Reading and writing weight files: safetensors (mapped, not copied) and, safely, PyTorch's own .bin files.

Nothing here runs code from a file: .bin files go through `weights_only` loading, which knows tensors alone.
"""

from __future__ import annotations

import json
import logging
import pickle
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from clearhead import files
from clearhead.errors import CheckpointError
from clearhead.hub.elmo_folder import is_elmo_folder, weights_file
from clearhead.hub.hdf5 import HDF5File

log = logging.getLogger("clearhead")
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)  # what a model can run in
SAFETENSORS, SAFETENSORS_INDEX = "model.safetensors", "model.safetensors.index.json"
BIN, BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
# one file, or the index of its shards; the second pair is what diffusers calls them
WEIGHT_FILES = (
    (SAFETENSORS, SAFETENSORS_INDEX),
    ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.safetensors.index.json"),
    (BIN, BIN_INDEX),
    ("diffusion_pytorch_model.bin", "diffusion_pytorch_model.bin.index.json"),
)
_VARIANT = re.compile(r"[a-z_]+\.(?!.*-of-)[\w-]+\.(safetensors|bin)|[a-z_]+\.(safetensors|bin)\.index\.[\w-]+\.json")
_LONGEST_NAME = 255  # bytes of a file's name
_COPY_BYTES = 16 * 2**20  # how many bytes of a file are in memory while its tensors are being converted


class Weights(Mapping[str, Tensor]):
    """The tensors of a checkpoint by published name, over all its shards; each is read when it is asked for."""

    def __init__(
        self, shards: Mapping[Path, list[str]], opened: Mapping[Path, dict[str, Tensor]] | None = None
    ) -> None:
        """opened: the tensors of shards that are in memory already"""
        self._files = {name: path for path, names in shards.items() for name in names}
        self._open: dict[Path, Any] = dict(opened or {})
        self._copying: dict[Path, Any] = {}  # mapped a second time: what is kept would keep the pages of what is copied
        self._copied = 0  # bytes, since that mapping was made

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def _shard(self, name: str) -> Any:
        path = self._files[name]
        if path not in self._open:
            self._open[path] = _open_shard(path)
        return self._open[path]

    def __getitem__(self, name: str) -> Tensor:
        """The tensor as it lies in the file: mapped, not copied."""
        shard = self._shard(name)
        tensor: Tensor = shard[name] if isinstance(shard, dict) else shard.get_tensor(name)
        return tensor

    def read(self, name: str, dtype: torch.dtype, device: torch.device, *, column_major: bool = False) -> Tensor:
        """The tensor as it lies in the file (mapped), or in another type, place or order: then copied some rows at a
        time, so that only little of the original is in memory.

        column_major: a matrix whose transpose is contiguous
        """
        shape = self.shape(name)
        column_major = column_major and len(shape) == 2
        as_stored = self.dtype(name) == str(dtype).removeprefix("torch.") and device.type == "cpu"
        if as_stored and not column_major:
            return self[name]
        out = torch.empty(shape[::-1] if column_major else shape, dtype=dtype, device=device)
        out = out.t() if column_major else out
        if not shape or isinstance(self._shard(name), dict):
            return out.copy_(self[name])
        path = self._files[name]
        # a matrix that is only transposed is taken whole: torch does that several times faster than some rows of it
        step = shape[0] if as_stored else max(1, _COPY_BYTES // (max(1, out[:1].numel()) * 4))
        for start in range(0, shape[0], step):
            if path not in self._copying:
                self._copying[path] = _open_shard(path)
            rows = self._copying[path].get_slice(name)[start : start + step]
            part = out[start : start + step]
            if column_major:
                part.t().copy_(rows.t())
            else:
                part.copy_(rows)
            self._copied += rows.nbytes
            if self._copied > _COPY_BYTES:  # let go of the mapping, and with it of the pages that were read
                self._copying.clear()
                self._copied = 0
        return out

    def shape(self, name: str) -> tuple[int, ...]:
        shard = self._shard(name)
        return tuple(shard[name].shape if isinstance(shard, dict) else shard.get_slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """The name of a tensor's dtype, such as "float32"."""
        shard = self._shard(name)
        if isinstance(shard, dict):
            return str(shard[name].dtype).removeprefix("torch.")
        code: str = shard.get_slice(name).get_dtype()
        return _DTYPES.get(code, code)


_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # safetensors' names for them


def open_weights(folder: Path) -> Weights:
    """Find the weight files of a folder: one file or shards, safetensors before .bin."""
    for file, index in WEIGHT_FILES:
        if (folder / file).is_file():
            path = folder / file
            return Weights({path: names_in(path)})
        if (folder / index).is_file():
            return Weights(_find_shards(folder, index))
    if is_elmo_folder(folder):
        path = weights_file(folder)
        return Weights({path: names_in(path)})
    if (variant := _find_variant(folder)) is not None:
        return variant
    others = sorted(
        p.name for p in folder.iterdir() if p.suffix in (".h5", ".msgpack", ".gguf", ".ckpt", ".pt", ".pth")
    )
    hint = f" It has {', '.join(others)}, which Clearhead does not read." if others else ""
    raise CheckpointError(
        f"No weights in {folder}: it needs {SAFETENSORS} (or {SAFETENSORS_INDEX} with its shards, or {BIN}).{hint}"
    )


def _find_variant(folder: Path) -> Weights | None:
    """Files of another precision, as diffusers names them: model.fp16.safetensors, or the index of its shards. They are
    read where there are no others, and a warning says so."""
    for file, index in WEIGHT_FILES:
        stem, _, kind = file.rpartition(".")
        found = [*sorted(folder.glob(f"{stem}.*.{kind}")), *sorted(folder.glob(index.replace(".json", ".*.json")))]
        found = [path for path in found if _VARIANT.fullmatch(path.name)]
        if found:
            log.warning("%s has no %s; its variant %s is read.", folder, file, found[0].name)
            shards = (
                _find_shards(folder, found[0].name) if found[0].suffix == ".json" else {found[0]: names_in(found[0])}
            )
            return Weights(shards)
    return None


def read_shard_index(path: Path) -> dict[str, str]:
    """A shard index: tensor name -> file name, each a plain name in the index's own folder."""
    try:
        weight_map = files.read_json(path, CheckpointError)["weight_map"]
        index = {str(name): str(file) for name, file in weight_map.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a valid shard index ({_first_line(error)}).") from None
    for name, file in index.items():
        if len(file.encode("utf-8", "replace")) > _LONGEST_NAME:
            raise CheckpointError(
                f"{path} says that {_cut(name)} is in {_cut(file)!r}, a name longer than a file can have."
            )
        if Path(file).name != file or file in ("", ".", "..") or "\\" in file:
            raise CheckpointError(
                f"{path} says that {_cut(name)} is in {_cut(file)!r}, which is not a plain file name in its own "
                "folder. An index may name nothing outside the checkpoint."
            )
    return index


def _find_shards(folder: Path, index: str) -> dict[Path, list[str]]:
    shards: dict[Path, list[str]] = {}
    for name, file in read_shard_index(folder / index).items():
        shards.setdefault(folder / file, []).append(name)
    missing = [path.name for path in shards if not path.is_file()]
    if missing:
        raise CheckpointError(f"{folder} lacks {first_few(missing)}, named in {index}. Is the download complete?")
    for path, names in shards.items():
        absent = set(names) - set(names_in(path))
        if absent:
            raise CheckpointError(f"{path} lacks {first_few(sorted(absent))}, which {index} says it holds.")
    return shards


def names_in(path: Path) -> list[str]:
    """The names of the tensors in a file."""
    shard = _open_shard(path)
    return list(shard) if isinstance(shard, dict) else list(shard.keys())


def _open_shard(path: Path) -> Any:
    if path.suffix == ".hdf5":
        return HDF5File(path)
    if path.suffix == ".safetensors":
        try:
            return safe_open(path, framework="pt")
        except MemoryError:
            raise CheckpointError(f"{path} is too large for this machine: {path.stat().st_size:,} bytes.") from None
        except (SafetensorError, OSError, ValueError) as error:
            start = path.read_bytes()[:200] if path.stat().st_size < 10_000 else b""
            if start.startswith(b"version https://git-lfs"):
                raise CheckpointError(
                    f"{path} is a Git LFS pointer, not the file it stands for. Fetch it with `git lfs pull`."
                ) from None
            raise CheckpointError(
                f"{path} is not a whole safetensors file: {error}. It has {path.stat().st_size:,} bytes; "
                "was the download cut short? Fetch it again."
            ) from None
    return _open_bin(path)


def _open_bin(path: Path) -> dict[str, Tensor]:
    return table_of_tensors(read_pickled(path), path)


def read_pickled(path: Path, passed_over: Iterable[str] = ()) -> Any:
    """What a file of torch.save holds, where that is tensors and plain data; anything else is refused.

    passed_over   full names of classes that may stand in it beside the tensors: none of them is imported, and what is
                  of them is left out (`Left`)
    """
    try:
        with torch.serialization.safe_globals([(Left, name) for name in passed_over]):
            # Only the zip format can be mapped; older files are read whole.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path) or None)
    except pickle.UnpicklingError:
        raise CheckpointError(
            f"{path} was refused: it holds something other than tensors, and such files can run code when opened "
            "(only tensors are read). Ask its author for a safetensors file."
        ) from None
    except (RuntimeError, EOFError, ValueError, OSError, LookupError, AttributeError, TypeError, MemoryError) as error:
        raise CheckpointError(
            f"{path} is not a readable PyTorch file ({_first_line(error)}). Fetch it again."
        ) from None


class Left:
    """Stands for an object of a file that is not read: it takes what it is given, and keeps nothing."""

    def __init__(self, *_: Any) -> None: ...
    def __setstate__(self, _: Any) -> None: ...


def table_of_tensors(value: Any, path: Path) -> dict[str, Tensor]:
    """The same as a table by name; an error where it is none."""
    if not isinstance(value, dict) or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in value.items()):
        raise CheckpointError(f"{path} does not hold a plain table of named tensors.")
    return dict(value)


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """A safetensors file with the rights of any other new file: the library's own is for its owner alone."""
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(mode)


def write_weights(
    folder: Path, tensors: Iterator[tuple[str, Tensor]], max_shard_bytes: int, stem: str = "model"
) -> None:
    """Write safetensors into `folder`: one file, or numbered shards with an index when they do not fit one.

    stem   how the files' names begin; diffusers' parts have another
    """
    shards: list[list[str]] = [[]]
    paths: list[Path] = []
    pending: dict[str, Tensor] = {}
    size = total = 0

    def flush() -> None:
        path = folder / f"shard-{len(paths) + 1}"
        write_tensors(pending, path)
        paths.append(path)
        pending.clear()

    for name, tensor in tensors:
        tensor_bytes = tensor.numel() * tensor.element_size()
        if pending and size + tensor_bytes > max_shard_bytes:
            flush()
            shards.append([])
            size = 0
        pending[name] = tensor.detach().to("cpu").contiguous()
        shards[-1].append(name)
        size += tensor_bytes
        total += tensor_bytes
    flush()
    if len(paths) == 1:
        paths[0].rename(folder / f"{stem}.safetensors")
        return
    weight_map: dict[str, str] = {}
    for n, (path, names) in enumerate(zip(paths, shards, strict=True), start=1):
        file = f"{stem}-{n:05d}-of-{len(paths):05d}.safetensors"
        path.rename(folder / file)
        weight_map |= dict.fromkeys(names, file)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def first_few(names: list[str], count: int = 8) -> str:
    """The first few of many names, for a message."""
    rest = f" and {len(names) - count} more" if len(names) > count else ""
    return ", ".join(map(_cut, names[:count])) + rest


def _cut(name: str, longest: int = 100) -> str:
    return name if len(name) <= longest else f"{name[:longest]}…"
