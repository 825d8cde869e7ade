"""DPM-Solver++ (2022): a step solved exactly in its linear half, with a polynomial through the last predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import ConfigError
from clearhead.generate.diffusion.schedule import Generators, SchedulerConfig, SchedulerOutput
from clearhead.generate.diffusion.sigmas import SigmaScheduler, SpreadConfig
from clearhead.nn.latent import noise_like

FEW_STEPS = 15  # below which the last steps are of a lower order


@dataclass(kw_only=True)
class DPMSolverConfig(SpreadConfig):
    """algorithm_type   "dpmsolver++" works on the predicted picture, "dpmsolver" on the predicted noise;
                     "sde-dpmsolver++" draws fresh noise after each step
    solver_order     1, 2 or 3: how many predictions a step is made of
    """

    class_name: ClassVar[str] = "DPMSolverMultistepScheduler"
    fixed: ClassVar[dict[str, tuple[Any, ...]]] = {
        "use_beta_sigmas": (False,),
        "use_lu_lambdas": (False,),
        "use_flow_sigmas": (False,),
        "use_dynamic_shifting": (False,),
    }

    solver_order: int = 2
    thresholding: bool = False
    dynamic_thresholding_ratio: float = 0.995
    sample_max_value: float = 1.0
    algorithm_type: str = "dpmsolver++"
    solver_type: str = "midpoint"
    lower_order_final: bool = True
    euler_at_final: bool = False
    lambda_min_clipped: Any = -math.inf

    def __post_init__(self) -> None:
        self.algorithm_type = {"deis": "dpmsolver++"}.get(self.algorithm_type, self.algorithm_type)
        self.solver_type = {"logrho": "midpoint", "bh1": "midpoint", "bh2": "midpoint"}.get(
            self.solver_type, self.solver_type
        )
        super().__post_init__()
        for name, known in {
            "algorithm_type": ("dpmsolver++", "dpmsolver", "sde-dpmsolver++"),
            "solver_type": ("midpoint", "heun"),
            "solver_order": (1, 2, 3),
        }.items():
            if getattr(self, name) not in known:
                raise ConfigError(self._unknown_value(name, getattr(self, name)))
        if not isinstance(self.lambda_min_clipped, int | float) or math.isnan(self.lambda_min_clipped):
            raise ConfigError(f"lambda_min_clipped is {self.lambda_min_clipped!r}; it must be a number.")
        if self.algorithm_type == "dpmsolver" and self.final_sigmas_type == "zero":
            raise ConfigError('algorithm_type "dpmsolver" cannot end without noise: set final_sigmas_type "sigma_min".')


class DPMSolverScheduler(SigmaScheduler):
    config_class: ClassVar[type[SchedulerConfig]] = DPMSolverConfig

    def __init__(self, config: SchedulerConfig | None = None, **settings: Any) -> None:
        super().__init__(config, **settings)
        self._outputs: list[Tensor] = []  # of the last steps, newest last

    def _choose_steps(self, count: int) -> np.ndarray:
        self._outputs = []
        config, trained = self.config, self.config.num_train_timesteps
        if config.use_karras_sigmas or config.use_exponential_sigmas:
            sigmas = self._spread(self.trained_sigmas[::-1], count)
            times = self._times_of(sigmas)
            if config.use_karras_sigmas and config.beta_schedule != "squaredcos_cap_v2":
                times = times.round()
        else:
            times = self._spaced(count, self._last_step(), trained)
            sigmas = self._interpolated(times)
        self.sigmas = torch.from_numpy(np.append(sigmas, self._final_sigma()).astype(np.float32))
        self.num_inference_steps = len(times)
        return times.astype(np.int64)

    def _last_step(self) -> int:
        """How many of the trained steps are visited: those with log(α/σ) above lambda_min_clipped."""
        ratios = torch.log(self.alphas_cumprod.sqrt()) - torch.log((1 - self.alphas_cumprod).sqrt())
        clipped = torch.searchsorted(ratios.flip(0), float(self.config.lambda_min_clipped))
        return int(self.config.num_train_timesteps - clipped)

    def _spaced(self, count: int, last: int, trained: int) -> np.ndarray:
        """One step more than is made: none stands at the picture itself."""
        if self.config.timestep_spacing == "linspace":
            return np.linspace(0, last - 1, count + 1).round()[::-1][:-1].copy()
        if self.config.timestep_spacing == "leading":
            steps = (np.arange(0, count + 1) * (last // (count + 1)))[::-1][:-1]
            return steps.astype(np.float64) + self.config.steps_offset
        return np.arange(last, 0, -trained / count).round() - 1.0

    def step(
        self, model_output: Tensor, timestep: Any, sample: Tensor, *, generator: Generators = None
    ) -> SchedulerOutput:
        self._check_started()
        place, count, config = self._find_step(timestep), len(self.timesteps), self.config
        alpha, sigma = _alpha_sigma(self.sigmas[place])
        picture, noise = _pair(config.prediction_type, model_output, sample, alpha, sigma)
        if config.thresholding:
            picture = self._limited(picture)
            noise = (sample - alpha * picture) / sigma
        output = noise if config.algorithm_type == "dpmsolver" else picture
        self._outputs = [*self._outputs[1 - config.solver_order :], output] if config.solver_order > 1 else [output]
        few = config.lower_order_final and count < FEW_STEPS
        order = min(config.solver_order, len(self._outputs))
        if place == count - 1 and (config.euler_at_final or few or config.final_sigmas_type == "zero"):
            order = 1
        elif place == count - 2 and few:
            order = min(order, 2)
        fresh = noise_like(output.float(), generator) if config.algorithm_type.startswith("sde") else None
        before = self._moved(sample.float(), place, order, fresh)
        self._step_index = place + 1
        return SchedulerOutput(before.to(model_output.dtype), picture)

    def _moved(self, sample: Tensor, place: int, order: int, fresh: Tensor | None) -> Tensor:
        """One step of the paper's multistep solvers; in terms of λ = log(α/σ), over which predictions change slowly."""
        alpha_t, sigma_t = _alpha_sigma(self.sigmas[place + 1])
        at = [_alpha_sigma(self.sigmas[place - n]) for n in range(order)]
        lambdas = [torch.log(alpha) - torch.log(sigma) for alpha, sigma in at]
        h = torch.log(alpha_t) - torch.log(sigma_t) - lambdas[0]
        keep, weights, spread = self._weights(h, alpha_t, sigma_t, *at[0])
        moved = keep * sample + weights[0] * self._outputs[-1]
        if order > 1:
            first = (self._outputs[-1] - self._outputs[-2]) / ((lambdas[0] - lambdas[1]) / h)
        if order == 2:
            by_type = 0.5 * weights[0] if self.config.solver_type == "midpoint" else weights[1]
            moved = moved + by_type * first
        if order == 3:
            r0, r1 = (lambdas[0] - lambdas[1]) / h, (lambdas[1] - lambdas[2]) / h
            second = (self._outputs[-2] - self._outputs[-3]) / r1
            slope = first + (r0 / (r0 + r1)) * (first - second)
            moved = moved + weights[1] * slope + weights[2] * (first - second) / (r0 + r1)
        return moved if fresh is None else moved + spread * fresh

    def _weights(
        self, h: Tensor, alpha: Tensor, sigma: Tensor, alpha_s: Tensor, sigma_s: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor], Tensor]:
        """What multiplies the latent; the prediction and its first and second differences; and fresh noise."""
        if self.config.algorithm_type == "dpmsolver":
            grown = torch.exp(h) - 1.0
            return alpha / alpha_s, (-sigma * grown, -sigma * (grown / h - 1.0), -sigma * ((grown - h) / h**2 - 0.5)), h
        if self.config.algorithm_type == "sde-dpmsolver++":
            gone = 1.0 - torch.exp(-2.0 * h)
            second = alpha * (gone / (-2.0 * h) + 1.0), alpha * ((gone - 2.0 * h) / (2.0 * h) ** 2 - 0.5)
            return sigma / sigma_s * torch.exp(-h), (alpha * gone, *second), sigma * torch.sqrt(gone)
        shrunk = torch.exp(-h) - 1.0
        return (
            sigma / sigma_s,
            (-alpha * shrunk, alpha * (shrunk / h + 1.0), -alpha * ((shrunk + h) / h**2 - 0.5)),
            h,
        )

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        alpha, sigma = _alpha_sigma(self._noise_widths(original_samples, timesteps))
        return alpha * original_samples + sigma * noise

    def _place_of(self, timestep: Any) -> int:
        """A time that is none of the steps counts as the last, as in diffusers."""
        places = (self.timesteps == torch.as_tensor(timestep).to(self.timesteps.device)).nonzero()
        return int(places[1 if len(places) > 1 else 0]) if len(places) else len(self.timesteps) - 1


def _alpha_sigma(sigma: Tensor) -> tuple[Tensor, Tensor]:
    """From σ beside a picture of width one to (α, σ) with α² + σ² = 1."""
    alpha = 1 / ((sigma**2 + 1) ** 0.5)
    return alpha, sigma * alpha


def _pair(kind: str, output: Tensor, sample: Tensor, alpha: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """(picture, noise) that a prediction amounts to."""
    if kind == "epsilon":
        return (sample - sigma * output) / alpha, output
    if kind == "sample":
        return output, (sample - alpha * output) / sigma
    return alpha * sample - sigma * output, alpha * output + sigma * sample
