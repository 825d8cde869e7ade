"""The loss that teaches a UNet: its targets, weights and noise, beside diffusers' formulas; and that it teaches."""

import diffusers
import pytest
import torch
from diffusers.training_utils import compute_snr

from clearhead.errors import InputError
from clearhead.generate.diffusion import read_scheduler
from clearhead.generate.diffusion.learning import diffusion_loss, min_snr_weights, training_noise
from clearhead.hub.diffusers_parts import load_part
from tests.diffusion.reference import TEXT_WIDTH, close, unet
from tests.diffusion.test_draw import PLAIN


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unet")
    theirs = unet(1, in_channels=4, center_input_sample=False, **PLAIN)
    theirs.save_pretrained(folder)
    return load_part(folder, "UNet2DConditionModel"), theirs


def drawn(seed=0):
    generator = torch.Generator().manual_seed(seed)
    latents, noise = torch.randn(2, 3, 4, 8, 8, generator=generator)
    return latents, noise, torch.randn(3, 5, TEXT_WIDTH, generator=generator), torch.tensor([3, 500, 990])


@pytest.mark.parametrize("kind", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize("gamma", [None, 5.0])
def test_the_loss_is_diffusers(small, kind, gamma):
    """As its training scripts compute it."""
    ours, theirs = small
    settings = {"prediction_type": kind, "beta_schedule": "scaled_linear"}
    reference = diffusers.DDPMScheduler(**settings)
    latents, noise, states, steps = drawn()
    with torch.no_grad():
        predicted = theirs(reference.add_noise(latents, noise, steps), steps, states).sample
    target = {"epsilon": noise, "sample": latents, "v_prediction": reference.get_velocity(latents, noise, steps)}[kind]
    errors = (predicted - target).square().mean(dim=(1, 2, 3))
    if gamma is not None:
        snr = compute_snr(reference, steps)
        divisor = {"epsilon": snr, "sample": 1.0, "v_prediction": snr + 1}[kind]
        errors = errors * snr.clamp(max=gamma) / divisor
    for name in ("DDPMScheduler", "EulerDiscreteScheduler"):  # whose own add_noise counts otherwise
        scheduler = read_scheduler(name, settings)
        with torch.no_grad():
            found = diffusion_loss(ours, scheduler, latents, states, timesteps=steps, noise=noise, min_snr_gamma=gamma)
        close(found, errors.mean())


def test_captions_are_dropped_and_noise_is_offset(small):
    ours, _ = small
    scheduler = read_scheduler("DDPMScheduler", {})
    latents, noise, states, steps = drawn()
    options = {"timesteps": steps, "noise": noise}
    empty = torch.zeros(1, 5, TEXT_WIDTH)
    with torch.no_grad():
        always = diffusion_loss(ours, scheduler, latents, states, empty=empty, caption_dropout=1.0, **options)
        close(always, diffusion_loss(ours, scheduler, latents, empty.expand(3, -1, -1), **options))
        assert not torch.allclose(always, diffusion_loss(ours, scheduler, latents, states, **options))
    with pytest.raises(InputError, match="empty"):
        diffusion_loss(ours, scheduler, latents, states, caption_dropout=0.1)
    large = torch.zeros(400, 4, 8, 8)
    plain, offset = (
        training_noise(large, torch.Generator().manual_seed(1), off).mean((2, 3)).std() for off in (0, 0.5)
    )
    assert abs(plain - 1 / 8) < 0.01 and abs(offset - (1 / 64 + 0.25) ** 0.5) < 0.03
    assert (min_snr_weights(scheduler, torch.arange(1000), 5.0) <= 1 + 1e-6).all()


def test_it_learns(tmp_path):
    """A few steps on one latent, and the loss falls."""
    unet(1, in_channels=4, center_input_sample=False, **PLAIN).save_pretrained(tmp_path)
    model = load_part(tmp_path, "UNet2DConditionModel").train()
    scheduler = read_scheduler("DDPMScheduler", {"prediction_type": "v_prediction"})
    latents, _, states, _ = drawn()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for step in range(30):
        generator = torch.Generator().manual_seed(step % 2)
        loss = diffusion_loss(model, scheduler, latents, states, generator=generator)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
