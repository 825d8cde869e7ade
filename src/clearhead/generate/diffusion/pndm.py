"""PNDM (2022): steps that remember the predictions before them; PLMS, without the Runge–Kutta steps it begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.diffusion.schedule import (
    Generators,
    Scheduler,
    SchedulerConfig,
    SchedulerOutput,
    predicted_pair,
    spaced_steps,
)

# how the last predictions are weighed, the newest first (Adams–Bashforth)
WEIGHTS = {
    2: (3 / 2, -1 / 2),
    3: (23 / 12, -16 / 12, 5 / 12),
    4: (55 / 24, -59 / 24, 37 / 24, -9 / 24),
}
RUNGE_KUTTA = (1 / 6, 1 / 3, 1 / 3, 1 / 6)


@dataclass(kw_only=True)
class PNDMConfig(SchedulerConfig):
    class_name: ClassVar[str] = "PNDMScheduler"

    skip_prk_steps: bool = False
    set_alpha_to_one: bool = False
    prediction_type: Literal["epsilon", "v_prediction"] = "epsilon"


class PNDMScheduler(Scheduler):
    """It visits a time twice at first (PLMS), or four times each (Runge–Kutta): there are more steps than asked for."""

    config_class = PNDMConfig

    def __init__(self, config: SchedulerConfig | None = None, **settings: Any) -> None:
        super().__init__(config, **settings)
        self.final_alpha_cumprod = torch.tensor(1.0) if self.config.set_alpha_to_one else self.alphas_cumprod[0]
        self._runge_kutta: np.ndarray = np.array([], dtype=np.int64)
        self._restart()

    def _restart(self) -> None:
        self._outputs: list[Tensor] = []  # predictions of the last steps, oldest first
        self._count = 0
        self._sample: Tensor | None = None  # from where a time is visited again
        self._mean: Any = 0  # of the four predictions of a Runge–Kutta step

    def _choose_steps(self, count: int) -> np.ndarray:
        self._restart()
        steps = spaced_steps(self.config, count).round().astype(np.int64)[::-1]  # upwards
        if self.config.skip_prk_steps:
            self._runge_kutta = np.array([], dtype=np.int64)
            return np.concatenate([steps[:-1], steps[-2:-1], steps[-1:]])[::-1].copy()
        half = self.config.num_train_timesteps // count // 2
        last = steps[-4:]
        visits = last.repeat(2) + np.tile(np.array([0, half]), 4)[: 2 * len(last)]
        self._runge_kutta = visits[:-1].repeat(2)[1:-1][::-1].copy()
        return np.concatenate([self._runge_kutta, steps[:-3][::-1]])

    def step(
        self, model_output: Tensor, timestep: Any, sample: Tensor, *, generator: Generators = None
    ) -> SchedulerOutput:
        self._check_started()
        t = int(timestep)
        picture, _ = predicted_pair(self.config.prediction_type, model_output, sample, self.alphas_cumprod[t])
        runs = self._count < len(self._runge_kutta)
        before = self._runge_kutta_step(model_output, t, sample) if runs else self._linear_step(model_output, t, sample)
        self._count += 1
        return SchedulerOutput(before, picture)

    def _runge_kutta_step(self, output: Tensor, t: int, sample: Tensor) -> Tensor:
        half = self.config.num_train_timesteps // self._check_started() // 2
        to = t - (0 if self._count % 2 else half)
        t = int(self._runge_kutta[self._count // 4 * 4])
        visit = self._count % 4
        if visit == 0:
            self._outputs.append(output)
            self._sample = sample
        if visit == 3:
            output = self._mean + RUNGE_KUTTA[3] * output
            self._mean = 0
        else:
            self._mean = self._mean + RUNGE_KUTTA[visit] * output
        return self._moved(sample if self._sample is None else self._sample, t, to, output)

    def _linear_step(self, output: Tensor, t: int, sample: Tensor) -> Tensor:
        if not self.config.skip_prk_steps and len(self._outputs) < 3:
            raise InputError(
                "PNDM with Runge–Kutta steps cannot begin in the middle, as a drawing from a picture does. "
                'Take another scheduler (scheduler="ddim"), or this one with skip_prk_steps.'
            )
        stride = self.config.num_train_timesteps // self._check_started()
        to = t - stride
        if self._count == 1:  # the first time, visited again from the same latent
            t, to = t + stride, t
            output = (output + self._outputs[-1]) / 2
            assert self._sample is not None
            sample, self._sample = self._sample, None
        else:
            self._outputs = [*self._outputs[-3:], output]
            if self._count == 0:
                self._sample = sample
            elif len(self._outputs) > 1:
                weights = WEIGHTS[len(self._outputs)]
                output = sum(w * o for w, o in zip(weights, reversed(self._outputs), strict=True))  # type: ignore[assignment]
        return self._moved(sample, t, to, output)

    def _moved(self, sample: Tensor, t: int, to: int, output: Tensor) -> Tensor:
        """From one time to another along the prediction: formula (9) of the paper."""
        left = self.alphas_cumprod[t]
        left_there = self.alphas_cumprod[to] if to >= 0 else self.final_alpha_cumprod
        if self.config.prediction_type == "v_prediction":
            output = left**0.5 * output + (1 - left) ** 0.5 * sample
        divisor = left * (1 - left_there) ** 0.5 + (left * (1 - left) * left_there) ** 0.5
        return (left_there / left) ** 0.5 * sample - (left_there - left) * output / divisor
