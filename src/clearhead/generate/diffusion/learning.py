"""What a denoising UNet learns: to tell the noise (or the velocity, or the picture) in a latent that was made noisy."""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.diffusion.schedule import Generators, Scheduler
from clearhead.nn.latent import noise_like


def learning_target(scheduler: Scheduler, latents: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
    """What the UNet should say, by the scheduler's prediction_type."""
    kind = scheduler.config.prediction_type
    if kind == "epsilon":
        return noise
    return latents if kind == "sample" else scheduler.get_velocity(latents, noise, timesteps)


def min_snr_weights(scheduler: Scheduler, timesteps: Tensor, gamma: float) -> Tensor:
    """(batch,): how much each step counts (min-SNR, 2023). Steps with little noise would otherwise decide nearly alone.

    min(SNR, γ) for a predicted picture; divided by SNR for noise, and by SNR + 1 for velocity, as their errors are
    those of a picture in other units.
    """
    left = scheduler.alphas_cumprod.to(timesteps.device)[timesteps]
    snr = left / (1 - left)
    limited = snr.clamp(max=gamma)
    kind = scheduler.config.prediction_type
    if kind == "sample":
        return limited
    return limited / (snr if kind == "epsilon" else snr + 1)


def training_noise(latents: Tensor, generator: Generators = None, offset: float = 0.0) -> Tensor:
    """Unit noise; with an `offset` (0.1 is usual) some of it is the same all over a channel, so that very dark and very
    bright pictures can be learned."""
    noise = noise_like(latents, generator)
    if not offset:
        return noise
    return noise + offset * noise_like(latents[:, :, :1, :1], generator)


def diffusion_loss(
    unet: torch.nn.Module,
    scheduler: Scheduler,
    latents: Tensor,  # of pictures, scaled: (batch, channels, height, width)
    states: Tensor,  # of their texts: (batch, tokens, width)
    *,
    timesteps: Tensor | None = None,
    noise: Tensor | None = None,
    empty: Tensor | None = None,
    caption_dropout: float = 0.0,
    min_snr_gamma: float | None = None,
    noise_offset: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The mean squared error of one prediction for each latent, at a random step.

    empty, caption_dropout   the states of the empty text, (1 or batch, tokens, width), and how often they stand in for
                             a text: what guidance compares with has to be learned (0.1 is usual)
    timesteps, noise         in place of random ones
    """
    count = len(latents)
    if caption_dropout and empty is None:
        raise InputError("caption_dropout needs the states of the empty text: empty=pipe.encode_prompt('').")
    if noise is None:
        noise = training_noise(latents, generator, noise_offset)
    if timesteps is None:
        timesteps = torch.randint(len(scheduler), (count,), generator=generator).to(latents.device)
    if caption_dropout:
        assert empty is not None
        dropped = torch.rand(count, generator=generator).to(states.device) < caption_dropout
        states = torch.where(dropped[:, None, None], empty.to(states), states)
    # the trained schedule, whatever steps a drawing would visit
    noisy = Scheduler.add_noise(scheduler, latents, noise, timesteps)
    predicted = unet(noisy, timesteps, states).sample
    target = learning_target(scheduler, latents, noise, timesteps)
    errors = (predicted.float() - target.float()).square().mean(dim=(1, 2, 3))
    if min_snr_gamma is not None:
        errors = errors * min_snr_weights(scheduler, timesteps, min_snr_gamma)
    return errors.mean()
