"""The loop that draws: the UNet says what is noise, guided by a text, and the scheduler takes some of it off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearhead.generate.diffusion.ddpm import DDIMScheduler
from clearhead.generate.diffusion.schedule import Scheduler


@dataclass(frozen=True)
class DrawingStep:
    """What is there after a step: `latents`, which are noise for half of the way, and `predicted`, the latents of the
    picture that the UNet expects at the end."""

    index: int  # 0 … count - 1
    count: int
    timestep: Tensor
    latents: Tensor
    predicted: Tensor


@dataclass(frozen=True)
class KeptParts:
    """What inpainting keeps of a picture: its latents where the mask is 0, with as much noise as the drawing has."""

    mask: Tensor  # (batch or 1, 1, height, width) of the latents: 1 is drawn anew
    picture: Tensor
    noise: Tensor


@dataclass(frozen=True)
class Guidance:
    """The text, and what is drawn without it. Both run in one batch: without + scale · (with - without)."""

    states: Tensor  # (batch, tokens, width)
    without: Tensor | None  # the same of a negative or empty text; None: the text alone decides
    scale: float

    def predict(self, unet: Callable[..., Any], sample: Tensor, timestep: Tensor, beside: Tensor | None) -> Tensor:
        """beside   further channels that the UNet reads: an inpainting model's mask and masked picture"""
        states = self.states if self.without is None else torch.cat([self.without, self.states])
        copies = len(states) // len(sample)
        inputs = sample if beside is None else torch.cat([sample, beside], dim=1)
        predicted: Tensor = unet(inputs.repeat(copies, 1, 1, 1), timestep, states).sample
        if self.without is None:
            return predicted
        without, with_text = predicted.chunk(2)
        return without + self.scale * (with_text - without)


def denoise(
    unet: Callable[..., Any],
    scheduler: Scheduler,
    latents: Tensor,
    timesteps: Tensor,
    guidance: Guidance,
    *,
    generators: Sequence[torch.Generator] | None = None,
    eta: float = 0.0,
    beside: Tensor | None = None,
    kept: KeptParts | None = None,
    on_step: Callable[[DrawingStep], None] | None = None,
) -> Tensor:
    """From noise (or a picture with noise in it) to the latents of a picture, one step for each of `timesteps`."""
    options: dict[str, Any] = {"generator": generators}
    if isinstance(scheduler, DDIMScheduler):
        options["eta"] = eta
    for index, timestep in enumerate(timesteps):
        inputs = scheduler.scale_model_input(latents, timestep)
        output = guidance.predict(unet, inputs, timestep, beside)
        step = scheduler.step(output, timestep, latents, **options)
        latents = step.prev_sample
        if kept is not None:
            original = kept.picture
            if index < len(timesteps) - 1:
                original = scheduler.add_noise(original, kept.noise, timesteps[index + 1 : index + 2])
            latents = (1 - kept.mask) * original + kept.mask * latents
        if on_step is not None:
            predicted = step.pred_original_sample.to(latents.dtype)
            on_step(DrawingStep(index, len(timesteps), timestep, latents, predicted))
    return latents
