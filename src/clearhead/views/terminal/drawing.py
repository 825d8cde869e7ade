"""Drawings in the terminal: pictures in half blocks, side by side, and words as light over the picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.text import Text

from clearhead.views.terminal.elements import ACCENT, bar, footnote, heading
from clearhead.views.terminal.picture import half_blocks

COLUMNS = 16  # of a small picture
MOST_WORDS = 24


def _picture(array: np.ndarray, columns: int = COLUMNS) -> Text:
    from PIL import Image

    return half_blocks(Image.fromarray(array), columns)


def _side_by_side(pictures: Sequence[tuple[str, np.ndarray]]) -> Columns:
    return Columns(
        [Group(_picture(array), Text(name[:COLUMNS], style="dim")) for name, array in pictures], padding=(1, 2)
    )


def _named(steps: Any) -> list[tuple[str, np.ndarray]]:
    return [(f"{step.noise:.0%} noise", step.picture) for step in steps]


def draw_drawing_steps(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, finding.text)
    yield _side_by_side([*_named(finding.steps), ("drawn", finding.picture)])
    yield footnote(f"What the UNet expects the picture to be, step by step ({finding.scheduler}).")


def draw_forward_process(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding)
    yield _side_by_side(_named(finding.steps))
    yield footnote("The same picture with ever more noise in its latent.")


def draw_word_maps(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, finding.text)
    shown = [("drawn", finding.picture)]
    most = max(float(finding.maps.max()), 1e-9)
    for word, map_ in list(zip(finding.words, finding.maps, strict=True))[:MOST_WORDS]:
        grey = (np.clip(map_ / (float(map_.max()) or most), 0, 1) * 255).astype(np.uint8)
        shown.append((f"{word} {float(map_.mean()):.0%}", np.repeat(grey[:, :, None], 3, axis=2)))
    yield _side_by_side(shown)
    padding = float(finding.padding.mean())
    yield footnote(
        f"Light: where a word was looked at, each to its own brightest place; the share is over the whole picture. "
        f"Padding got {padding:.0%}. {len(finding.layers)} layers."
    )


def draw_noise_schedule(finding: Any, width: int) -> Iterator[RenderableType]:
    yield heading(finding, finding.scheduler)
    visited = set(map(round, finding.visited))
    for step in np.linspace(0, len(finding.signal) - 1, 12).round().astype(int):
        line = Text(f"{step:>5}  {finding.signal[step]:.3f}  ")
        yield line + Text(bar(float(finding.signal[step])), style=ACCENT)
    yield footnote(f"What is left of the picture at a trained step. {len(visited)} of them are visited.")
