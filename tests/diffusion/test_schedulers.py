"""Every scheduler over whole trajectories, beside diffusers' own, for random settings."""

import random

import diffusers
import pytest
import torch

from clearhead.errors import ConfigError, InputError
from clearhead.generate.diffusion import CLASSES, NAMES, other_scheduler, read_scheduler

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
COMMON = {
    "num_train_timesteps": [1000, 1000, 200],
    "beta_start": [0.0001, 0.00085],
    "beta_end": [0.02, 0.012],
    "beta_schedule": ["linear", "scaled_linear", "squaredcos_cap_v2"],
    "prediction_type": ["epsilon", "v_prediction", "sample"],
    "timestep_spacing": ["leading", "trailing", "linspace"],
    "steps_offset": [0, 1],
}
CLIPS = {
    "clip_sample": [False, True],
    "clip_sample_range": [1.0, 2.0],
    "thresholding": [False, False, True],
    "sample_max_value": [1.0, 1.7],
    "rescale_betas_zero_snr": [False, True],
}
SPREAD = {
    "use_karras_sigmas": [False, True],
    "rescale_betas_zero_snr": [False, True],
    "final_sigmas_type": ["zero", "sigma_min"],
}
SETTINGS = {
    "DDPMScheduler": {**CLIPS, "variance_type": ["fixed_small", "fixed_small_log", "fixed_large"]},
    "DDIMScheduler": {**CLIPS, "set_alpha_to_one": [True, False]},
    "PNDMScheduler": {
        "skip_prk_steps": [True, False],
        "set_alpha_to_one": [True, False],
        "prediction_type": ["epsilon", "v_prediction"],
    },
    "EulerDiscreteScheduler": {**SPREAD, "interpolation_type": ["linear", "linear", "log_linear"]},
    "EulerAncestralDiscreteScheduler": {
        "rescale_betas_zero_snr": [False, True],
        "prediction_type": ["epsilon", "v_prediction"],
    },
    "DPMSolverMultistepScheduler": {
        **SPREAD,
        "algorithm_type": ["dpmsolver++", "dpmsolver++", "sde-dpmsolver++"],
        "solver_order": [1, 2, 2, 3],
        "solver_type": ["midpoint", "heun"],
        "thresholding": [False, False, True],
        "lower_order_final": [True, False],
        "euler_at_final": [False, True],
        "lambda_min_clipped": [-float("inf"), -5.1],
    },
}


def drawn_settings(name, seed):
    draw = random.Random(f"{name}{seed}")
    settings = {key: draw.choice(values) for key, values in {**COMMON, **SETTINGS[name]}.items()}
    if settings.get("rescale_betas_zero_snr") and settings["prediction_type"] == "epsilon":
        settings["prediction_type"] = "v_prediction"  # where nothing is left, no picture can be told from the noise
    return settings, draw.choice([5, 10, 20, 33])


def pair(name, settings):
    theirs = getattr(diffusers, name)(**settings)
    return read_scheduler(name, settings, of_stable_diffusion=False), theirs


def close(ours, theirs, what, tolerance=1e-5):
    ours, theirs = (torch.as_tensor(x, dtype=torch.float32) for x in (ours, theirs))
    assert ours.shape == theirs.shape, what
    assert torch.equal(ours.isfinite(), theirs.isfinite()), what
    scale = theirs[theirs.isfinite()].abs().max() if theirs.isfinite().any() else 1.0
    same = torch.where(theirs.isfinite(), ours - theirs, 0.0)
    assert same.abs().max() <= tolerance * scale, (what, (same.abs().max() / scale).item())


@pytest.mark.parametrize("seed", range(14))
@pytest.mark.parametrize("name", SETTINGS)
def test_whole_trajectories(name, seed):
    settings, steps = drawn_settings(name, seed)
    ours, theirs = pair(name, settings)
    close(ours.betas, theirs.betas, "betas")
    close(ours.alphas_cumprod, theirs.alphas_cumprod, "alphas")
    for scheduler in (ours, theirs):
        scheduler.set_timesteps(steps)
    assert ours.timesteps.dtype == theirs.timesteps.dtype
    close(ours.timesteps, theirs.timesteps, "timesteps")
    close(ours.init_noise_sigma, theirs.init_noise_sigma, "init_noise_sigma")
    if theirs.timesteps[0] == theirs.timesteps[1] and name != "PNDMScheduler":
        ours.set_begin_index(0), theirs.set_begin_index(0)  # of two steps alike, both begin at the second unless told
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(2, 4, 4, 4, generator=generator)
    pattern = torch.randn(2, 4, 4, 4, generator=generator)
    samples = [start * ours.init_noise_sigma, start * theirs.init_noise_sigma]
    noises = [torch.Generator().manual_seed(seed + 1) for _ in range(2)]
    takes_generator = name != "PNDMScheduler"
    for n, t in enumerate(theirs.timesteps):
        inputs = [s.scale_model_input(x, t) for s, x in zip((ours, theirs), samples, strict=True)]
        close(inputs[0], inputs[1], f"input {n}", 1e-4)
        outputs = [(0.6 * x + 0.4 * pattern).clamp(-3, 3) for x in inputs]  # a UNet that answers with what it sees
        found = ours.step(outputs[0], t, samples[0], generator=noises[0])
        wanted = theirs.step(outputs[1], t, samples[1], **({"generator": noises[1]} if takes_generator else {}))
        samples = [found.prev_sample, wanted.prev_sample]
        close(*samples, f"step {n} of {settings}", 1e-4)
        if wanted.get("pred_original_sample") is not None:
            close(found.pred_original_sample, wanted.pred_original_sample, f"picture {n}", 1e-4)


@pytest.mark.parametrize("name", SETTINGS)
def test_single_steps_are_equal(name):
    """From the same latent each time, so that nothing adds up."""
    for seed in range(20, 26):
        settings, steps = drawn_settings(name, seed)
        ours, theirs = pair(name, settings)
        for scheduler in (ours, theirs):
            scheduler.set_timesteps(steps)
        sample = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(seed))
        noises = [torch.Generator().manual_seed(seed) for _ in range(2)]
        for n, t in enumerate(theirs.timesteps[:8]):
            output = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(n))
            ours.scale_model_input(sample, t), theirs.scale_model_input(sample, t)
            extra = {} if name == "PNDMScheduler" else {"generator": noises[1]}
            found = ours.step(output, t, sample, generator=noises[0]).prev_sample
            close(found, theirs.step(output, t, sample, **extra).prev_sample, (n, settings))
            sample = found.nan_to_num(0, 0, 0)


@pytest.mark.parametrize("name", SETTINGS)
def test_noise_is_added_alike(name):
    for seed in range(3):
        settings, steps = drawn_settings(name, seed)
        ours, theirs = pair(name, settings)
        for scheduler in (ours, theirs):
            scheduler.set_timesteps(steps)
        picture, noise = torch.randn(2, 3, 4, 2, 2, generator=torch.Generator().manual_seed(seed))
        times = theirs.timesteps[[0, 2, -1]]
        close(ours.add_noise(picture, noise, times), theirs.add_noise(picture, noise, times), settings)
        if hasattr(theirs, "set_begin_index"):
            for scheduler in (ours, theirs):
                scheduler.set_begin_index(2)
            wanted = theirs.add_noise(picture, noise, times[1:2])
            close(ours.add_noise(picture, noise, times[1:2]), wanted, settings)


def test_ddim_draws_noise_when_asked():
    ours, theirs = pair("DDIMScheduler", {"clip_sample": False})
    for scheduler in (ours, theirs):
        scheduler.set_timesteps(7)
    sample, output = torch.randn(2, 1, 4, 4, 4)
    for t in theirs.timesteps:
        seeds = [torch.Generator().manual_seed(int(t)) for _ in range(2)]
        found = ours.step(output, t, sample, eta=0.7, generator=seeds[0]).prev_sample
        sample = theirs.step(output, t, sample, eta=0.7, generator=seeds[1]).prev_sample
        close(found, sample, t)


def test_facts_of_stable_diffusion():
    sd = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
    pndm = read_scheduler("PNDMScheduler", {**sd, "skip_prk_steps": True, "set_alpha_to_one": False})
    pndm.set_timesteps(50)
    assert len(pndm.timesteps) == 51 and pndm.timesteps[:4].tolist() == [981, 961, 961, 941]
    ddim = read_scheduler("DDIMScheduler", sd)
    ddim.set_timesteps(5)
    assert ddim.timesteps.tolist() == [801, 601, 401, 201, 1] and ddim.config.clip_sample is False
    euler = read_scheduler("EulerDiscreteScheduler", sd)
    euler.set_timesteps(20)
    assert euler.init_noise_sigma.item() == pytest.approx(14.6146, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_scheduler_is_swapped_as_in_diffusers(name):
    sd = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
    theirs = diffusers.PNDMScheduler(**sd, skip_prk_steps=True)
    ours = other_scheduler(read_scheduler("PNDMScheduler", {**sd, "skip_prk_steps": True}), name)
    cls, settings = NAMES[name]
    wanted = getattr(diffusers, cls.config_class.class_name).from_config(theirs.config, **settings)
    for scheduler in (ours, wanted):
        scheduler.set_timesteps(9)
    close(ours.timesteps, wanted.timesteps, name)
    close(ours.alphas_cumprod, wanted.alphas_cumprod, name)


def test_what_a_scheduler_does_not_do_is_said():
    with pytest.raises(ConfigError, match="UniPC"):
        read_scheduler("UniPCMultistepScheduler", {})
    with pytest.raises(ConfigError, match="beta_schedule"):
        read_scheduler("DDIMScheduler", {"beta_schedule": "exponential"})
    with pytest.raises(ConfigError, match="use_beta_sigmas"):
        read_scheduler("EulerDiscreteScheduler", {"use_beta_sigmas": True})
    with pytest.raises(ConfigError, match="algorithm_type"):
        read_scheduler("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver"})
    with pytest.raises(ConfigError, match="variance_type"):
        read_scheduler("DDPMScheduler", {"variance_type": "learned_range"})
    ddim = read_scheduler("DDIMScheduler", {})
    with pytest.raises(InputError, match="set_timesteps"):
        ddim.step(torch.zeros(1, 4, 2, 2), 5, torch.zeros(1, 4, 2, 2))
    for wrong in (0, 1001, 2.5, "ten"):
        with pytest.raises(InputError, match="num_inference_steps"):
            ddim.set_timesteps(wrong)
    with pytest.raises(InputError, match="euler"):
        other_scheduler(ddim, "eular")


def test_files_are_written_as_diffusers_reads_them(tmp_path):
    for name in CLASSES:
        ours = read_scheduler(name, drawn_settings(name, 3)[0], of_stable_diffusion=False)
        theirs = getattr(diffusers, name).from_config(ours.config.to_dict())
        wrong = {k: v for k, v in ours.config.to_dict().items() if not k.startswith("_") and theirs.config[k] != v}
        assert not wrong
