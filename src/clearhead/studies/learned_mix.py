"""The layers of a model mixed for a task: γ · Σ softmax(s)ₙ · layerₙ, the weights learned beside a linear reader.

This is how ELMo's authors use it. Here the weights are what is wanted: with them the layers become one vector, which is
then judged by the same reader as every other choice.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from clearhead.nn.scalar_mix import ScalarMix

EPOCHS, BATCH = 3, 512
RATE, MIX_RATE = 1e-2, 1e-1  # of the reader, and of the few weights of the mix


def learned_mix(layers: list[np.ndarray], labels: np.ndarray, seed: int = 1) -> np.ndarray:
    """The share of each layer, summing to one.

    layers   (words, width) each      labels   (words,): numbers of classes
    """
    stacked = [_standardised(layer) for layer in layers]
    wanted = torch.from_numpy(labels.astype(np.int64))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        mix, reader = ScalarMix(len(layers)), nn.Linear(stacked[0].shape[1], int(labels.max()) + 1)
        rates = [{"params": mix.parameters(), "lr": MIX_RATE}, {"params": reader.parameters(), "lr": RATE}]
        moved = torch.optim.Adam(rates)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(wanted)).split(BATCH):
                loss = nn.functional.cross_entropy(reader(mix([layer[rows] for layer in stacked])), wanted[rows])
                moved.zero_grad()
                loss.backward()
                moved.step()
    shares: np.ndarray = mix.weights.detach().softmax(0).numpy()
    return shares


def _standardised(layer: np.ndarray) -> Tensor:
    """Mean 0 and one variance for the whole layer, as ELMo's layer norm: its directions keep their sizes."""
    x = torch.from_numpy(layer.astype(np.float32))
    return (x - x.mean()) / x.std().clamp(min=1e-6)
