"""What is on the disk, and whether it is still what was written."""

import os
import zlib
from pathlib import Path


def flush(path: Path) -> None:
    """Wait until a file, or the list of a folder's files, is on the disk and not only promised."""
    if os.name == "nt" and path.is_dir():
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def crc_of(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            crc = zlib.crc32(block, crc)
    return crc
