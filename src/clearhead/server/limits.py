"""How much may be asked of a server at once; clients are told, and what is more is refused in words."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    characters: int = 20_000  # of a text
    tokens: int = 512  # of a text that is explained: attention grows with its square
    new_tokens: int = 512  # written at once
    beams: int = 10
    answer_bytes: int = 96 * 2**20  # of the numbers of an answer
    at_once: int = max(2, min(4, os.cpu_count() or 2))  # jobs that compute
    waiting: int = 32  # jobs that may wait for their turn
