"""How a picture comes about: the picture expected at every step, where each word acts, and how noise is added.

Pictures are arrays (height, width, 3) of whole numbers from 0 to 255.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import InputError
from clearhead.explain.finding import Finding
from clearhead.generate.diffusion import DrawingStep
from clearhead.messages import say
from clearhead.nn.latent import noise_like
from clearhead.nn.tracing import trace
from clearhead.pipeline.diffusion import DiffusionPipeline
from clearhead.pipeline.picture_tensors import to_pictures, to_pixels
from clearhead.pipeline.picture_texts import length_of

CROSS = "cross_attention.weights"


@dataclass(frozen=True)
class PictureStep:
    """timestep   of the trained steps, from the noisiest down
    noise      the share of the latent's variance that is noise there
    picture    what is expected at the end (of a drawing), or what is there (of noise being added)
    """

    timestep: float
    noise: float
    picture: np.ndarray


@dataclass(frozen=True, repr=False, eq=False)
class DrawingSteps(Finding):
    """The predicted picture at every step of a drawing; the last one is what was drawn."""

    kind: ClassVar[str] = "drawing-steps"

    model: str
    text: str
    scheduler: str
    steps: list[PictureStep]
    picture: np.ndarray

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["step", "timestep", "noise"]
        yield from ([n, step.timestep, step.noise] for n, step in enumerate(self.steps))


@dataclass(frozen=True, repr=False, eq=False)
class ForwardProcess(Finding):
    """A picture of one's own, with ever more noise, as the model was shown pictures when it learned."""

    kind: ClassVar[str] = "forward-process"

    model: str
    steps: list[PictureStep]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["timestep", "noise"]
        yield from ([step.timestep, step.noise] for step in self.steps)


@dataclass(frozen=True, repr=False, eq=False)
class WordMaps(Finding):
    """
    words     the tokens that the UNet looked at, the start and end tokens too
    maps      (words, rows, columns): how much of its attention each place of the latent gave to the word; everywhere
              the words and the padding sum to one
    padding   (rows, columns): what went to the tokens after the end token
    layers    whose cross-attention was averaged; heads and steps: None, all of them
    """

    kind: ClassVar[str] = "word-maps"

    model: str
    text: str
    words: list[str]
    maps: np.ndarray
    padding: np.ndarray
    layers: list[str]
    heads: list[int] | None
    steps: list[int] | None
    picture: np.ndarray

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["word", "row", "column", "weight"]
        for word, map_ in zip(self.words, self.maps, strict=True):
            for (row, column), weight in np.ndenumerate(map_):
                yield [word, row, column, float(weight)]


@dataclass(frozen=True, repr=False, eq=False)
class NoiseSchedule(Finding):
    """
    signal, noise   at each trained step: √ᾱ and √(1 - ᾱ), what the picture and the noise are multiplied by
    visited         the steps that a drawing makes
    """

    kind: ClassVar[str] = "noise-schedule"

    model: str
    scheduler: str
    signal: np.ndarray
    noise: np.ndarray
    visited: list[float]

    def table(self) -> Iterator[Iterable[Any]]:
        yield ["timestep", "signal", "noise"]
        yield from ([n, float(s), float(e)] for n, (s, e) in enumerate(zip(self.signal, self.noise, strict=True)))


def _checked(pipe: Any) -> DiffusionPipeline:
    if not isinstance(pipe, DiffusionPipeline):
        raise InputError(say("drawing.does_not_draw", title=getattr(pipe, "title", type(pipe).__name__)))
    return pipe


def _arrays(pipe: DiffusionPipeline, latents: Tensor) -> list[np.ndarray]:
    return [np.asarray(picture) for picture in to_pictures(pipe.decode(latents))]


def _noise_at(pipe: DiffusionPipeline, timestep: float) -> float:
    last = len(pipe.scheduler.alphas_cumprod) - 1
    return float(1 - pipe.scheduler.alphas_cumprod[min(max(round(float(timestep)), 0), last)])


def drawing_steps(pipe: Any, text: str, **options: Any) -> DrawingSteps:
    """The gallery of predicted pictures. Options are those of `draw`."""
    pipe = _checked(pipe)
    steps: list[PictureStep] = []

    def keep(step: DrawingStep) -> None:
        time = float(step.timestep)
        steps.append(PictureStep(time, _noise_at(pipe, time), _arrays(pipe, step.predicted[:1])[0]))

    drawn = pipe.draw([text], on_step=keep, **options)
    scheduler = options.get("scheduler") or pipe.scheduler.config.class_name
    return DrawingSteps(pipe.name, text, scheduler, steps, np.asarray(drawn[0]))


def word_maps(
    pipe: Any,
    text: str,
    *,
    layers: str | Sequence[str] = "**",
    heads: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    **options: Any,
) -> WordMaps:
    """Where each word acts: cross-attention, averaged over layers, heads and steps.

    layers   names, or patterns of them, such as "down.1.0" or ["middle", "up.1.*"]; by default all
    heads    by number, where a layer has so many; by default all
    steps    counted from 0; by default all
    """
    pipe = _checked(pipe)
    patterns = [layers] if isinstance(layers, str) else list(layers)
    gathered = _Gathered(heads, steps)
    with trace(pipe.unet, *(f"{pattern}.{CROSS}" for pattern in patterns), detach=True) as seen:
        drawn = pipe.draw([text], on_step=lambda step: gathered.add(step, dict(seen)), **options)
    if gathered.count == 0:
        raise InputError(say("drawing.no_maps", heads=str(heads), steps=str(steps)))
    maps = (gathered.total / gathered.count).cpu().numpy()
    ids = pipe.tokenizer(text, truncation=True, max_length=length_of(pipe.text_encoder, pipe.tokenizer))["input_ids"]
    words = [pipe.tokenizer.decode([token]).strip() or str(token) for token in ids]
    names = [name.removesuffix(f".{CROSS}") for name in seen]
    chosen = [None if given is None else list(given) for given in (heads, steps)]
    return WordMaps(
        pipe.name, text, words, maps[: len(ids)], maps[len(ids) :].sum(0), names, chosen[0], chosen[1],
        np.asarray(drawn[0]),
    )  # fmt: skip


class _Gathered:
    """Adds attention up while a picture is drawn, so that no step has to be kept."""

    def __init__(self, heads: Sequence[int] | None, steps: Sequence[int] | None) -> None:
        self.heads, self.steps = heads, steps
        self.total, self.count = torch.zeros(()), 0

    def add(self, step: DrawingStep, weights: dict[str, Tensor]) -> None:
        if self.steps is not None and step.index not in self.steps:
            return
        height, width = step.latents.shape[-2:]
        for each in weights.values():
            # (texts, heads, pixels, tokens); of the batch the first picture, with its text and not without it
            own = each[len(each) - len(step.latents)].float()
            chosen = range(len(own)) if self.heads is None else [n for n in self.heads if n < len(own)]
            if not chosen:
                continue
            mean = own[list(chosen)].mean(0).t()  # (tokens, pixels)
            rows, columns = _grid(mean.shape[-1], height, width)
            grid = F.interpolate(mean.reshape(1, -1, rows, columns), size=(height, width), mode="bilinear")[0]
            self.total, self.count = self.total.to(grid.device) + grid, self.count + 1


def _grid(pixels: int, height: int, width: int) -> tuple[int, int]:
    """The size, halved some times and rounded up, that has so many pixels."""
    while height * width > pixels:
        height, width = -(-height // 2), -(-width // 2)
    return height, width


@torch.no_grad()
def forward_process(pipe: Any, image: Any, *, steps: int = 8, seed: int = 0) -> ForwardProcess:
    """A picture with ever more noise, at so many evenly spaced times."""
    pipe = _checked(pipe)
    if steps < 2:
        raise InputError(say("drawing.two_steps"))
    pixels = to_pixels(image, pipe.scale, None)[:1].to(pipe.vae.device, pipe.vae.dtype)
    latent = pipe.vae.encode(pixels).latent_dist
    assert latent is not None
    clean = latent.mean * pipe.vae.config.scaling_factor
    noise = noise_like(clean, torch.Generator().manual_seed(seed))
    found = []
    for time in torch.linspace(0, len(pipe.scheduler) - 1, steps).round().long():
        left = pipe.scheduler.alphas_cumprod[time].to(clean)
        noisy = left**0.5 * clean + (1 - left) ** 0.5 * noise
        found.append(PictureStep(float(time), _noise_at(pipe, float(time)), _arrays(pipe, noisy)[0]))
    return ForwardProcess(pipe.name, found)


def noise_schedule(pipe: Any, num_inference_steps: int = 30) -> NoiseSchedule:
    """How much of a picture is left at every trained step, and which of them a drawing visits."""
    pipe = _checked(pipe)
    scheduler = pipe.scheduler.copy()
    scheduler.set_timesteps(num_inference_steps)
    left = scheduler.alphas_cumprod
    visited = [float(t) for t in scheduler.timesteps]
    name = scheduler.config.class_name
    return NoiseSchedule(pipe.name, name, (left**0.5).numpy(), ((1 - left) ** 0.5).numpy(), visited)
