"""DDPM (2020): each step draws from what was there a step earlier; DDIM (2020): the same without drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from clearhead.generate.diffusion.schedule import (
    Generators,
    Scheduler,
    SchedulerConfig,
    SchedulerOutput,
    predicted_pair,
)
from clearhead.nn.latent import noise_like

LEAST_VARIANCE = 1e-20


@dataclass(kw_only=True)
class ClippingConfig(SchedulerConfig):
    """clip_sample    the predicted picture is cut to ± clip_sample_range; latents reach further, so not with them
    thresholding   it is cut to its own quantile instead
    """

    clip_sample: bool = True
    clip_sample_range: float = 1.0
    thresholding: bool = False
    dynamic_thresholding_ratio: float = 0.995
    sample_max_value: float = 1.0
    rescale_betas_zero_snr: bool = False


@dataclass(kw_only=True)
class DDPMConfig(ClippingConfig):
    class_name: ClassVar[str] = "DDPMScheduler"
    schedules: ClassVar[tuple[str, ...]] = (*SchedulerConfig.schedules, "sigmoid")

    variance_type: Literal["fixed_small", "fixed_small_log", "fixed_large"] = "fixed_small"


class DDPMScheduler(Scheduler):
    config_class = DDPMConfig

    def _previous(self, timestep: int) -> int:
        """The step that comes next, towards the picture; -1 after the last."""
        if not self.num_inference_steps:
            return timestep - 1
        place = int((self.timesteps == timestep).nonzero()[0, 0])
        return int(self.timesteps[place + 1]) if place + 1 < len(self.timesteps) else -1

    def step(
        self, model_output: Tensor, timestep: Any, sample: Tensor, *, generator: Generators = None
    ) -> SchedulerOutput:
        t = int(timestep)
        previous = self._previous(t)
        left = self.alphas_cumprod[t]
        left_before = self.alphas_cumprod[previous] if previous >= 0 else torch.tensor(1.0)
        alpha = left / left_before
        picture, _ = predicted_pair(self.config.prediction_type, model_output, sample, left)
        picture = self._limited(picture)
        # the mean of what was there a step earlier, given what is here and the picture it comes from
        of_picture = left_before**0.5 * (1 - alpha) / (1 - left)
        of_sample = alpha**0.5 * (1 - left_before) / (1 - left)
        before = of_picture * picture + of_sample * sample
        if t > 0:
            before = before + self._std(left, left_before) * noise_like(model_output, generator)
        return SchedulerOutput(before, picture)

    def _std(self, left: Tensor, left_before: Tensor) -> Tensor:
        beta = 1 - left / left_before
        if self.config.variance_type == "fixed_large":
            return beta**0.5
        variance = ((1 - left_before) / (1 - left) * beta).clamp(min=LEAST_VARIANCE)
        return (0.5 * variance.log()).exp() if self.config.variance_type == "fixed_small_log" else variance**0.5


@dataclass(kw_only=True)
class DDIMConfig(ClippingConfig):
    """set_alpha_to_one   after the last step nothing is noise; otherwise as little as after the first trained one"""

    class_name: ClassVar[str] = "DDIMScheduler"

    set_alpha_to_one: bool = True


class DDIMScheduler(Scheduler):
    config_class = DDIMConfig

    def __init__(self, config: SchedulerConfig | None = None, **settings: Any) -> None:
        super().__init__(config, **settings)
        self.final_alpha_cumprod = torch.tensor(1.0) if self.config.set_alpha_to_one else self.alphas_cumprod[0]

    def step(
        self,
        model_output: Tensor,
        timestep: Any,
        sample: Tensor,
        eta: float = 0.0,
        *,
        generator: Generators = None,
    ) -> SchedulerOutput:
        """eta   how much of DDPM's noise is drawn: 0 none, 1 all of it"""
        t = int(timestep)
        previous = t - self.config.num_train_timesteps // self._check_started()
        left = self.alphas_cumprod[t]
        left_before = self.alphas_cumprod[previous] if previous >= 0 else self.final_alpha_cumprod
        picture, noise = predicted_pair(self.config.prediction_type, model_output, sample, left)
        picture = self._limited(picture)
        std = eta * ((1 - left_before) / (1 - left) * (1 - left / left_before)) ** 0.5
        before = left_before**0.5 * picture + (1 - left_before - std**2) ** 0.5 * noise
        if eta > 0:
            before = before + std * noise_like(model_output, generator)
        return SchedulerOutput(before, picture)
