"""Euler's method along the prediction (Karras 2022), and the ancestral one, which adds fresh noise after each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.generate.diffusion.schedule import Generators, SchedulerConfig, SchedulerOutput, spaced_steps
from clearhead.generate.diffusion.sigmas import SigmaConfig, SigmaScheduler, SpreadConfig
from clearhead.nn.latent import noise_like


@dataclass(kw_only=True)
class EulerConfig(SpreadConfig):
    class_name: ClassVar[str] = "EulerDiscreteScheduler"

    interpolation_type: Literal["linear", "log_linear"] = "linear"
    timestep_type: Literal["discrete", "continuous"] = "discrete"


class EulerScheduler(SigmaScheduler):
    config_class: ClassVar[type[SchedulerConfig]] = EulerConfig

    @property
    def init_noise_sigma(self) -> Tensor:
        most = self.sigmas.max()
        return most if self.config.timestep_spacing in ("linspace", "trailing") else (most**2 + 1) ** 0.5

    def _choose_steps(self, count: int) -> np.ndarray:
        config = self.config
        times = spaced_steps(config, count).astype(np.float32)
        if config.interpolation_type == "log_linear":
            ends = np.log(self.trained_sigmas[-1]), np.log(self.trained_sigmas[0])
            sigmas = torch.linspace(ends[0].item(), ends[1].item(), count + 1).exp().numpy()
        else:
            sigmas = self._interpolated(times)
        if config.use_karras_sigmas or config.use_exponential_sigmas:
            sigmas = self._spread(sigmas, count)
            times = self._times_of(sigmas).astype(np.float32)
        sigmas = np.append(sigmas, self._final_sigma()).astype(np.float32)
        self.sigmas = torch.from_numpy(sigmas)
        if config.timestep_type == "continuous" and config.prediction_type == "v_prediction":
            times = (0.25 * self.sigmas[:-1].log()).numpy()
        return times

    def scale_model_input(self, sample: Tensor, timestep: Any = None) -> Tensor:
        sigma = self.sigmas[self._find_step(timestep)]
        return sample / ((sigma**2 + 1) ** 0.5)

    def _picture(self, output: Tensor, sample: Tensor, sigma: Tensor) -> Tensor:
        if self.config.prediction_type == "sample":
            return output
        if self.config.prediction_type == "epsilon":
            return sample - sigma * output
        return output * (-sigma / (sigma**2 + 1) ** 0.5) + sample / (sigma**2 + 1)

    def step(
        self, model_output: Tensor, timestep: Any, sample: Tensor, *, generator: Generators = None
    ) -> SchedulerOutput:
        place = self._find_step(timestep)
        sigma, after = self.sigmas[place], self.sigmas[place + 1]
        sample = sample.float()
        picture = self._picture(model_output, sample, sigma)
        before = sample + (sample - picture) / sigma * (after - sigma)
        self._step_index = place + 1
        return SchedulerOutput(before.to(model_output.dtype), picture)

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        return original_samples + noise * self._noise_widths(original_samples, timesteps)


@dataclass(kw_only=True)
class EulerAncestralConfig(SigmaConfig):
    class_name: ClassVar[str] = "EulerAncestralDiscreteScheduler"

    prediction_type: Literal["epsilon", "v_prediction"] = "epsilon"


class EulerAncestralScheduler(EulerScheduler):
    """A step goes further down than it has to, and noise brings it back up."""

    config_class: ClassVar[type[SchedulerConfig]] = EulerAncestralConfig

    def _choose_steps(self, count: int) -> np.ndarray:
        times = spaced_steps(self.config, count).astype(np.float32)
        self.sigmas = torch.from_numpy(np.append(self._interpolated(times), 0.0).astype(np.float32))
        return times

    def step(
        self, model_output: Tensor, timestep: Any, sample: Tensor, *, generator: Generators = None
    ) -> SchedulerOutput:
        place = self._find_step(timestep)
        sigma, after = self.sigmas[place], self.sigmas[place + 1]
        sample = sample.float()
        picture = self._picture(model_output, sample, sigma)
        up = (after**2 * (sigma**2 - after**2) / sigma**2) ** 0.5
        down = (after**2 - up**2) ** 0.5
        before = sample + (sample - picture) / sigma * (down - sigma)
        before = before + noise_like(model_output, generator) * up
        self._step_index = place + 1
        return SchedulerOutput(before.to(model_output.dtype), picture)
