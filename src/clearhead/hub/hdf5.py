"""HDF5 files of weights, through h5py, which is an extra. Only what the file itself holds is read, and no links."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from clearhead.errors import CheckpointError, InputError

_DTYPES = {"float32": "F32", "float16": "F16", "float64": "F64"}  # as safetensors calls them


def h5py() -> ModuleType:
    """The package, or an error that says how to get it."""
    try:
        import h5py
    except ImportError:
        raise InputError("HDF5 files are read and written with h5py: pip install 'clearhead[elmo]'.") from None
    return h5py


class HDF5File:
    """The datasets of a file by their paths, with the methods of an open safetensors file."""

    def __init__(self, path: Path) -> None:
        library = h5py()
        self.path = path
        try:
            self._file = library.File(path, "r")
        except OSError as error:
            start = path.read_bytes()[:200] if path.is_file() and path.stat().st_size < 10_000 else b""
            if start.startswith(b"version https://git-lfs"):
                raise CheckpointError(
                    f"{path} is a Git LFS pointer, not the file it stands for. Fetch it with `git lfs pull`."
                ) from None
            raise CheckpointError(f"{path} is not a whole HDF5 file ({_reason(error)}). Fetch it again.") from None
        self._datasets: dict[str, Any] = {}
        try:
            self._file.visititems(self._add)  # follows no links to other places or files
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise self._damaged(error) from None

    def _add(self, name: str, item: Any) -> None:
        if not isinstance(item, h5py().Dataset):
            return
        if item.external or item.is_virtual:
            raise CheckpointError(f"{self.path} keeps {name} in another file, which is not read. Store it in this one.")
        self._datasets[name] = item

    def keys(self) -> list[str]:
        return list(self._datasets)

    def get_tensor(self, name: str) -> Tensor:
        return self.get_slice(name)[:]

    def get_slice(self, name: str) -> HDF5Slice:
        return HDF5Slice(self, name, self._datasets[name])

    def _damaged(self, error: Exception) -> CheckpointError:
        return CheckpointError(f"{self.path} is damaged ({_reason(error)}). Fetch it again.")


class HDF5Slice:
    """One dataset, of which rows can be read."""

    def __init__(self, file: HDF5File, name: str, dataset: Any) -> None:
        self._file, self._name, self._dataset = file, name, dataset

    def get_shape(self) -> list[int]:
        return list(self._dataset.shape or ())

    def get_dtype(self) -> str:
        return _DTYPES.get(str(self._dataset.dtype), str(self._dataset.dtype))

    def __getitem__(self, rows: slice) -> Tensor:
        if self._dataset.size and not self._dataset.id.get_storage_size():  # a shape, and nothing written for it
            raise CheckpointError(f"{self._file.path} has a place for {self._name}, and no numbers in it.")
        try:
            return torch.from_numpy(self._dataset[rows] if self._dataset.shape else self._dataset[()].reshape(()))
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            raise self._file._damaged(error) from None


def write_hdf5(path: Path, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Datasets of 32-bit numbers under their names, as the published files have them."""
    with h5py().File(path, "w") as file:
        for name, tensor in tensors:
            file.create_dataset(name, data=tensor.detach().to("cpu", torch.float32).contiguous().numpy())


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
