"""Schedulers that count noise in σ, the width of the noise beside a picture of width one: what they share.

sample = picture + σ · noise, so σ² = (1 - ᾱ) / ᾱ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import ConfigError, InputError
from clearhead.generate.diffusion.schedule import Scheduler, SchedulerConfig

RHO = 7.0  # of Karras' steps
LEAST_LEFT = 2.0**-24  # where a schedule ends in nothing but noise, σ would be infinite


@dataclass(kw_only=True)
class SigmaConfig(SchedulerConfig):
    """Of schedulers that count in σ; the trained step of a drawing may be a fraction."""

    timestep_spacing: Literal["leading", "trailing", "linspace"] = "linspace"
    rescale_betas_zero_snr: bool = False


@dataclass(kw_only=True)
class SpreadConfig(SigmaConfig):
    """use_karras_sigmas       steps dense where little noise is left (Karras 2022), wherever the trained ones are
    use_exponential_sigmas  steps evenly spaced in log σ
    final_sigmas_type       where the last step ends: "zero" noise, or "sigma_min", that of the first trained step
    """

    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {"use_beta_sigmas": (False,)}

    use_karras_sigmas: bool = False
    use_exponential_sigmas: bool = False
    sigma_min: float | None = None
    sigma_max: float | None = None
    final_sigmas_type: Literal["zero", "sigma_min"] = "zero"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.use_karras_sigmas and self.use_exponential_sigmas:
            raise ConfigError("use_karras_sigmas and use_exponential_sigmas choose the steps in two ways; take one.")


class SigmaScheduler(Scheduler):
    """Knows where it is by counting steps, since a time may be visited twice."""

    sigmas: Tensor

    def __init__(self, config: SchedulerConfig | None = None, **settings: Any) -> None:
        super().__init__(config, **settings)
        if self.config.rescale_betas_zero_snr:
            self.alphas_cumprod[-1] = LEAST_LEFT
        self.trained_sigmas: np.ndarray = (((1 - self.alphas_cumprod) / self.alphas_cumprod) ** 0.5).numpy()
        self.sigmas = torch.from_numpy(np.append(self.trained_sigmas[::-1], np.float32(0)).astype(np.float32))

    def _interpolated(self, times: np.ndarray) -> np.ndarray:
        """σ at these steps, which may lie between trained ones."""
        return np.interp(times, np.arange(len(self.trained_sigmas)), self.trained_sigmas)

    def _final_sigma(self) -> float:
        return float(self.trained_sigmas[0]) if self.config.final_sigmas_type == "sigma_min" else 0.0

    def _spread(self, sigmas: np.ndarray, count: int) -> np.ndarray:
        """Between the first and the last of these: by Karras, or evenly in the logarithm."""
        most = float(sigmas[0]) if self.config.sigma_max is None else self.config.sigma_max
        least = float(sigmas[-1]) if self.config.sigma_min is None else self.config.sigma_min
        if self.config.use_exponential_sigmas:
            return np.exp(np.linspace(np.log(most), np.log(least), count))
        ramp = np.linspace(0, 1, count)
        return (most ** (1 / RHO) + ramp * (least ** (1 / RHO) - most ** (1 / RHO))) ** RHO

    def _times_of(self, sigmas: np.ndarray) -> np.ndarray:
        """The (fractional) trained steps that have this much noise."""
        logs = np.log(self.trained_sigmas)
        wanted = np.log(np.maximum(sigmas, 1e-10))
        low = np.cumsum(wanted - logs[:, None] >= 0, axis=0).argmax(axis=0).clip(max=len(logs) - 2)
        share = np.clip((logs[low] - wanted) / (logs[low] - logs[low + 1]), 0, 1)
        return (1 - share) * low + share * (low + 1)

    @property
    def step_index(self) -> int | None:
        return self._step_index

    @property
    def begin_index(self) -> int | None:
        return self._begin_index

    def _place_of(self, timestep: Any) -> int:
        """Which of the steps this is. Of two alike the second: the first of all is never begun with twice."""
        places = (self.timesteps == torch.as_tensor(timestep).to(self.timesteps.device)).nonzero()
        if not len(places):
            raise InputError(f"{timestep} is none of scheduler.timesteps, the steps of this drawing.")
        return int(places[1 if len(places) > 1 else 0])

    def _find_step(self, timestep: Any) -> int:
        if self._step_index is None:
            self._step_index = self._place_of(timestep) if self._begin_index is None else self._begin_index
        return self._step_index

    def _noise_widths(self, original: Tensor, timesteps: Tensor) -> Tensor:
        """σ at these steps, to multiply with: (batch, 1, 1, 1)."""
        if self._begin_index is None:
            places = [self._place_of(t) for t in timesteps]
        else:  # of a drawing that is under way: where it is
            places = [self._begin_index if self._step_index is None else self._step_index] * len(timesteps)
        sigmas = self.sigmas.to(device=original.device, dtype=original.dtype)[places]
        return sigmas.reshape(-1, *(1,) * (original.ndim - 1))
