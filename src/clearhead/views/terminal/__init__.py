"""Findings in the terminal, in the colours they have everywhere: queries violet, keys orange, values blue."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from clearhead.explain.finding import Finding
from clearhead.views.terminal.attention import (
    draw_ablation,
    draw_alignment_steps,
    draw_attention,
    draw_attention_steps,
    draw_query_key,
)
from clearhead.views.terminal.attribution import draw_patching, draw_saliency
from clearhead.views.terminal.drawing import (
    draw_drawing_steps,
    draw_forward_process,
    draw_noise_schedule,
    draw_word_maps,
)
from clearhead.views.terminal.generation import draw_beams, draw_caching, draw_next_tokens, draw_sampling
from clearhead.views.terminal.layers import draw_comparison, draw_hidden_states, draw_similarity
from clearhead.views.terminal.model import draw_length_curve, draw_parameters, draw_positions
from clearhead.views.terminal.neurons import (
    draw_echo,
    draw_factors,
    draw_gates,
    draw_neuron_probe,
    draw_neurons,
    draw_top_tokens,
)
from clearhead.views.terminal.pictures import draw_text_pictures
from clearhead.views.terminal.prediction import draw_prediction
from clearhead.views.terminal.retrieval import draw_passages, draw_retrieval_ablation, draw_store_map
from clearhead.views.terminal.studies import draw_features, draw_sentiment, draw_similarity_study
from clearhead.views.terminal.walk import draw_walk
from clearhead.views.terminal.words import draw_neighbours, draw_word_in_context, draw_word_map


def drawn(finding: Finding) -> RenderableType:
    """The finding as something `rich` prints, as wide as the terminal is."""
    return _Drawing(finding)


def text_of(finding: Finding) -> str:
    """The same as a string: with colours where the output is a terminal, else without."""
    colour = sys.stdout is not None and sys.stdout.isatty()
    width = min(shutil.get_terminal_size((100, 40)).columns, 160)
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, highlight=False)
    console.print(drawn(finding))
    return console.file.getvalue().rstrip("\n")  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Drawing:
    finding: Finding

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        draw = DRAWERS.get(self.finding.kind)
        if draw is None:
            yield Text(f"{self.finding.kind}: no picture for the terminal; see .to_dict() or .save(…).")
        else:
            yield from draw(self.finding, options.max_width)


DRAWERS: dict[str, Callable[[Any, int], Iterator[RenderableType]]] = {
    "walk": draw_walk,
    "next-tokens": draw_next_tokens,
    "attention": draw_attention,
    "query-key": draw_query_key,
    "attention-steps": draw_attention_steps,
    "alignment-steps": draw_alignment_steps,
    "ablation": draw_ablation,
    "saliency": draw_saliency,
    "hidden-states": draw_hidden_states,
    "comparison": draw_comparison,
    "neurons": draw_neurons,
    "neuron-probe": draw_neuron_probe,
    "gates": draw_gates,
    "echo": draw_echo,
    "factors": draw_factors,
    "similarity": draw_similarity,
    "patching": draw_patching,
    "top-tokens": draw_top_tokens,
    "beams": draw_beams,
    "store-map": draw_store_map,
    "passages": draw_passages,
    "retrieval-ablation": draw_retrieval_ablation,
    "neighbours": draw_neighbours,
    "word-map": draw_word_map,
    "word-in-context": draw_word_in_context,
    "positions": draw_positions,
    "parameters": draw_parameters,
    "length-curve": draw_length_curve,
    "prediction": draw_prediction,
    "text-picture-matrix": draw_text_pictures,
    "sampling": draw_sampling,
    "cache": draw_caching,
    "drawing-steps": draw_drawing_steps,
    "forward-process": draw_forward_process,
    "word-maps": draw_word_maps,
    "noise-schedule": draw_noise_schedule,
    "sentiment-study": draw_sentiment,
    "features-study": draw_features,
    "similarity-study": draw_similarity_study,
}
