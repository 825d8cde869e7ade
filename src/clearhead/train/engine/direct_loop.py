"""The training loop of objectives that move the weights themselves, without gradients: word vectors."""

from __future__ import annotations

import torch

from clearhead.train.engine.loop import Loop, seed_of


class DirectLoop(Loop):
    """A step is one call of `Objective.learn`; all else is as in every run."""

    has_gradients = False

    def _step(self, step: int) -> None:
        [batch] = self.batches.at(step)
        self._lr = self.prepare(step)
        loss = self.objective.learn(self.module, batch, self._lr, seed_of(self.options.seed, step))
        self._pending.append(torch.tensor([loss, 0.0], dtype=torch.float64))
        self.progress.units += batch.units
