"""Whether what a call asks for can fit into memory at all, asked before the machine tries and is stopped."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from clearhead.errors import InputError

_CONTAINER = Path("/sys/fs/cgroup/memory.max")  # what a container may take; "max" without a limit


def check_fits(rows: int, bytes_per_row: int, device: torch.device) -> None:
    """An error where so many rows, of at least so many bytes each, are more than the whole machine has."""
    total = _total_memory(device)
    if total is not None and rows * bytes_per_row > total:
        raise InputError(
            f"{rows:,} texts side by side need at least {rows * bytes_per_row / 2**30:,.0f} GiB, and there are "
            f"{total / 2**30:,.0f} GiB. Ask for less at once: num_beams, num_return_sequences, the number of prompts, "
            "max_new_tokens."
        )


def _total_memory(device: torch.device) -> int | None:
    """All bytes that there are, free or not; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limit = _CONTAINER.read_text(encoding="ascii").strip() if _CONTAINER.exists() else ""
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None
    return min(total, int(limit)) if limit.isdecimal() else total
