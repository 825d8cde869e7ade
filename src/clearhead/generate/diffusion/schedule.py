"""What schedulers share: how much noise there is at each of the trained steps, and which of them a drawing visits.

A scheduler is a state of one drawing: `set_timesteps`, then a `step` for each of `timesteps`, in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import ConfigError, InputError
from clearhead.models.picture_part import PartConfig

MOST_BETA = 0.999  # of the cosine schedule
Generators = torch.Generator | Sequence[torch.Generator] | None


@dataclass(kw_only=True)
class SchedulerConfig(PartConfig):
    """
    beta_schedule      how the noise that a step adds grows: "linear", "scaled_linear" (in its square root),
                       "squaredcos_cap_v2" (the cosine schedule); `trained_betas` gives it as a list
    prediction_type    what the UNet predicts: "epsilon", the noise; "sample", the picture without it; "v_prediction",
                       the velocity √ᾱ · noise - √(1 - ᾱ) · picture
    timestep_spacing   which of the trained steps are visited: evenly with the last and the first ("linspace"), counted
                       from 0 on ("leading", then shifted by steps_offset), or from the last one down ("trailing")
    """

    family: ClassVar[str] = "scheduler"
    schedules: ClassVar[tuple[str, ...]] = ("linear", "scaled_linear", "squaredcos_cap_v2")

    num_train_timesteps: int = 1000
    beta_start: float = 0.0001
    beta_end: float = 0.02
    beta_schedule: str = "linear"
    trained_betas: list[float] | None = None
    prediction_type: Literal["epsilon", "sample", "v_prediction"] = "epsilon"
    timestep_spacing: Literal["leading", "trailing", "linspace"] = "leading"
    steps_offset: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._at_least(1, "num_train_timesteps")
        self._at_least(0, "beta_start", "beta_end", "steps_offset")
        if self.beta_schedule not in self.schedules:
            raise ConfigError(self._unknown_value("beta_schedule", self.beta_schedule))
        if self.trained_betas is not None and len(self.trained_betas) != self.num_train_timesteps:
            raise ConfigError(
                f"trained_betas has {len(self.trained_betas)} values for num_train_timesteps = "
                f"{self.num_train_timesteps}."
            )

    @classmethod
    def _read_others(cls, others: dict[str, Any], values: dict[str, Any]) -> list[str]:
        """A file often carries what the scheduler before it knew; that changes nothing here."""
        elsewhere = OF_SOME_SCHEDULER - set(cls.fixed)
        return super()._read_others({k: v for k, v in others.items() if k not in elsewhere}, values)


# every setting that some scheduler has; another one passes over it, as in diffusers
OF_SOME_SCHEDULER: frozenset[str] = frozenset(
    """
    clip_sample clip_sample_range set_alpha_to_one thresholding dynamic_thresholding_ratio sample_max_value
    rescale_betas_zero_snr skip_prk_steps variance_type interpolation_type use_karras_sigmas use_exponential_sigmas
    use_beta_sigmas use_lu_lambdas use_flow_sigmas flow_shift sigma_min sigma_max timestep_type final_sigmas_type
    solver_order algorithm_type solver_type lower_order_final euler_at_final lambda_min_clipped use_dynamic_shifting
    time_shift_type
    """.split()
)


def betas_of(config: SchedulerConfig) -> Tensor:
    """(num_train_timesteps,): how much noise each step adds."""
    steps, first, last = config.num_train_timesteps, config.beta_start, config.beta_end
    if config.trained_betas is not None:
        betas = torch.tensor(config.trained_betas, dtype=torch.float32)
    elif config.beta_schedule == "linear":
        betas = torch.linspace(first, last, steps, dtype=torch.float32)
    elif config.beta_schedule == "scaled_linear":
        betas = torch.linspace(first**0.5, last**0.5, steps, dtype=torch.float32) ** 2
    elif config.beta_schedule == "sigmoid":
        betas = torch.sigmoid(torch.linspace(-6, 6, steps)) * (last - first) + first
    else:
        left = [math.cos((n / steps + 0.008) / 1.008 * math.pi / 2) ** 2 for n in range(steps + 1)]
        betas = torch.tensor([min(1 - b / a, MOST_BETA) for a, b in pairwise(left)])
    return _ending_in_noise(betas) if getattr(config, "rescale_betas_zero_snr", False) else betas


def _ending_in_noise(betas: Tensor) -> Tensor:
    """The schedule moved so that nothing of the picture is left at its end (zero terminal SNR, 2023)."""
    root = torch.cumprod(1.0 - betas, dim=0).sqrt()
    first, last = root[0].clone(), root[-1].clone()
    root = (root - last) * (first / (first - last))
    left = root**2
    return 1 - torch.cat([left[:1], left[1:] / left[:-1]])


def spaced_steps(config: SchedulerConfig, count: int) -> np.ndarray:
    """(count,), from the noisiest down, not rounded."""
    trained = config.num_train_timesteps
    if config.timestep_spacing == "linspace":
        return np.linspace(0, trained - 1, count)[::-1].copy()
    if config.timestep_spacing == "leading":
        return (np.arange(0, count) * (trained // count))[::-1].astype(np.float64) + config.steps_offset
    return np.round(np.arange(trained, 0, -trained / count)) - 1.0


@dataclass(frozen=True)
class SchedulerOutput:
    """prev_sample            the latent one step nearer to a picture
    pred_original_sample   the picture (latent) that the prediction amounts to, all noise taken off at once
    """

    prev_sample: Tensor
    pred_original_sample: Tensor

    def __getitem__(self, place: int) -> Tensor:
        return (self.prev_sample, self.pred_original_sample)[place]


class Scheduler:
    """A subclass says how its steps are chosen (`_choose_steps`) and made (`step`)."""

    config_class: ClassVar[type[SchedulerConfig]]
    order = 1

    def __init__(self, config: SchedulerConfig | None = None, **settings: Any) -> None:
        self.config: Any = config if config is not None else self.config_class(**settings)
        self.betas = betas_of(self.config)
        self.alphas_cumprod = torch.cumprod(1.0 - self.betas, dim=0)  # ᾱ: what is left of the picture, squared
        self.num_inference_steps: int | None = None
        self.timesteps = torch.arange(self.config.num_train_timesteps - 1, -1, -1)
        self._begin_index: int | None = None
        self._step_index: int | None = None

    @property
    def init_noise_sigma(self) -> Any:
        """How wide the noise is that a drawing starts from."""
        return 1.0

    def copy(self) -> Self:
        """The same settings, at the start."""
        return type(self)(self.config)

    def __len__(self) -> int:
        return int(self.config.num_train_timesteps)

    def set_timesteps(self, num_inference_steps: int, device: torch.device | str | None = None) -> None:
        """Choose the steps of a drawing, and forget any before."""
        most = self.config.num_train_timesteps
        if isinstance(num_inference_steps, bool) or not isinstance(num_inference_steps, int):
            raise InputError(f"num_inference_steps is a whole number, not {num_inference_steps!r}.")
        if not 1 <= num_inference_steps <= most:
            raise InputError(
                f"num_inference_steps is {num_inference_steps}; it can be 1 to {most}, the steps it was trained with."
            )
        self.num_inference_steps = num_inference_steps
        self._begin_index = self._step_index = None
        self.timesteps = torch.from_numpy(self._choose_steps(num_inference_steps)).to(device)

    def _choose_steps(self, count: int) -> np.ndarray:
        return spaced_steps(self.config, count).round().astype(np.int64)

    def scale_model_input(self, sample: Tensor, timestep: Any = None) -> Tensor:
        """What the UNet reads in place of the latent."""
        return sample

    def step(
        self, model_output: Tensor, timestep: Any, sample: Tensor, *, generator: Generators = None
    ) -> SchedulerOutput:
        """The latent after this step, given what the UNet said of it."""
        raise NotImplementedError

    def set_begin_index(self, begin_index: int = 0) -> None:
        """Where among `timesteps` a drawing begins that starts from a picture."""
        self._begin_index = begin_index

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """√ᾱ · picture + √(1 - ᾱ) · noise: the way there, in one step."""
        left = self._at(timesteps, original_samples)
        return left**0.5 * original_samples + (1 - left) ** 0.5 * noise

    def get_velocity(self, sample: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """√ᾱ · noise - √(1 - ᾱ) · picture"""
        left = self._at(timesteps, sample)
        return left**0.5 * noise - (1 - left) ** 0.5 * sample

    def _at(self, timesteps: Tensor, like: Tensor) -> Tensor:
        """ᾱ at these steps, to multiply with: (batch, 1, 1, 1)."""
        left = self.alphas_cumprod.to(device=like.device, dtype=like.dtype)
        return left[timesteps.to(like.device).long()].reshape(-1, *(1,) * (like.ndim - 1))

    def _check_started(self) -> int:
        if self.num_inference_steps is None:
            raise InputError("Choose the steps first: scheduler.set_timesteps(30).")
        return self.num_inference_steps

    def _limited(self, sample: Tensor) -> Tensor:
        """A predicted picture, clipped where the settings ask for it."""
        if getattr(self.config, "thresholding", False):
            return _threshold(sample, self.config.dynamic_thresholding_ratio, self.config.sample_max_value)
        if getattr(self.config, "clip_sample", False):
            return sample.clamp(-self.config.clip_sample_range, self.config.clip_sample_range)
        return sample

    def __repr__(self) -> str:
        return f"<{self.config.class_name}: {len(self)} trained steps, {self.config.prediction_type}>"


def _threshold(sample: Tensor, ratio: float, most: float) -> Tensor:
    """Dynamic thresholding (Imagen, 2022): what is beyond the picture's own `ratio`-quantile is cut, and the rest
    brought back to [-1, 1]."""
    flat = sample.flatten(1).to(torch.promote_types(sample.dtype, torch.float32))
    limit = torch.quantile(flat.abs(), ratio, dim=1).clamp(min=1, max=most)[:, None]
    return (flat.clamp(-limit, limit) / limit).reshape(sample.shape).to(sample.dtype)


def predicted_pair(kind: str, output: Tensor, sample: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """(picture, noise) that a prediction amounts to, where ᾱ is `left`: sample = √ᾱ · picture + √(1 - ᾱ) · noise."""
    noise_left = 1 - left
    if kind == "epsilon":
        return (sample - noise_left**0.5 * output) / left**0.5, output
    if kind == "sample":
        return output, (sample - left**0.5 * output) / noise_left**0.5
    return left**0.5 * sample - noise_left**0.5 * output, left**0.5 * output + noise_left**0.5 * sample
