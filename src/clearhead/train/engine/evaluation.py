"""Held-out data measured: sums over all batches and devices, made into metrics by the objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn

from clearhead.train.data import Order, evaluation_batches
from clearhead.train.data.types import Examples
from clearhead.train.engine.world import World
from clearhead.train.objectives.base import Objective


@dataclass
class Evaluation:
    """
    module            what is trained
    examples, orders  by part: "valid", "test"
    """

    module: nn.Module
    objective: Objective
    examples: Mapping[str, Examples]
    orders: Mapping[str, Order]
    world: World
    seed: int = 1
    dtype: torch.dtype | None = None
    is_compiled: bool = False

    @torch.no_grad()
    def metrics(
        self, part: str, limit: int | None = None, watch: Callable[[int, int], None] = lambda done, total: None
    ) -> dict[str, float]:
        """
        limit   so many batches and no more
        watch   hears how many batches are done, of how many
        """
        sums: dict[str, float] = {}
        total = self.orders[part].steps_per_epoch()
        batches = evaluation_batches(
            self.examples[part], self.objective, self.orders[part], seed=self.seed,
            rank=self.world.rank, world_size=self.world.size, device=self.world.device, limit=limit, equal=True,
        )  # fmt: skip
        for done, batch in enumerate(batches):
            watch(done, total)
            with self.world.autocast(self.dtype), self.eager():
                for name, value in self.objective.measure(self.module, batch).items():
                    sums[name] = sums.get(name, 0.0) + (float(value) if batch.units else 0.0)
        return self.objective.report(self.world.sum(sums))

    def eager(self) -> AbstractContextManager[object]:
        """Around what is read in many shapes, once each: compiled code would be made anew for every one of them."""
        return torch.compiler.set_stance("force_eager") if self.is_compiled else nullcontext()
