"""Drawing: whole pipelines give diffusers' pictures from the same latents; what does not fit is said."""

import json
import logging
import shutil

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import clearhead as ch
from clearhead.errors import CheckpointError, ClearheadError, ConfigError, InputError
from tests.diffusion.pipelines import pipeline
from tests.diffusion.reference import close

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
PLAIN = {
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "mid_block_type": "UNetMidBlock2DCrossAttn",
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "attention_head_dim": 2,
    "transformer_layers_per_block": 1,
    "only_cross_attention": False,
}
SD = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "steps_offset": 1}
APPLE = {"num_inference_steps": 4, "output_type": "latent"}


def without_spread(theirs):
    """An autoencoder that is sure: what diffusers draws of a picture's latent is its mean."""
    with torch.no_grad():
        latent = theirs.vae.config.latent_channels
        theirs.vae.quant_conv.weight[latent:] = 0
        theirs.vae.quant_conv.bias[latent:] = -40
    return theirs


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sd") / "plain"
    theirs = without_spread(pipeline(folder, 3, unet=PLAIN, use_quant_conv=True))
    theirs.save_pretrained(folder)
    return ch.load(folder), theirs, folder


@pytest.fixture(scope="module")
def filling(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sd") / "filling"
    theirs = without_spread(pipeline(folder, 4, fills_in=True, unet=PLAIN, use_quant_conv=True))
    theirs.save_pretrained(folder)
    return ch.load(folder), theirs, folder


def noise(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def photo(width=32, height=32, seed=0):
    values = np.random.default_rng(seed).integers(0, 255, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(values).resize((width, height), Image.Resampling.BICUBIC)


def mask(width=32, height=32):
    picture = Image.new("L", (width, height), 0)
    picture.paste(255, (width // 2, 0, width, height))
    return picture


SCHEDULERS = [
    diffusers.DDPMScheduler(**SD, clip_sample=False),
    diffusers.DDIMScheduler(**SD, clip_sample=False, set_alpha_to_one=False),
    diffusers.PNDMScheduler(**SD, skip_prk_steps=True),
    diffusers.PNDMScheduler(**SD, prediction_type="v_prediction"),
    diffusers.EulerDiscreteScheduler(**SD),
    diffusers.EulerDiscreteScheduler(**SD, timestep_spacing="leading", use_karras_sigmas=True),
    diffusers.EulerAncestralDiscreteScheduler(**SD),
    diffusers.DPMSolverMultistepScheduler(**SD, use_karras_sigmas=True),
    # as old files are: both settings are set by the pipeline
    diffusers.DDIMScheduler(**{**SD, "steps_offset": 0}, clip_sample=True),
    diffusers.EulerDiscreteScheduler(**{**SD, "steps_offset": 0}, timestep_spacing="leading"),
]


@pytest.mark.parametrize("number", range(len(SCHEDULERS)))
def test_whole_pipelines(number, tmp_path):
    """Other parts and another scheduler each time; noise that is drawn on the way comes from the same generators."""
    theirs = pipeline(tmp_path / "sd", number, scheduler=SCHEDULERS[number])
    ours = ch.load(tmp_path / "sd")
    latents = noise(2, 4, 8, 8, seed=number)
    texts, negative = ["a red apple", "the blue pear, on wood"], ["", "small"]
    options = {"num_inference_steps": 5 + number % 3, "guidance_scale": 3.0, "latents": latents}
    generators = [torch.Generator().manual_seed(seed) for seed in (11, 12)]
    wanted = theirs(texts, negative_prompt=negative, generator=generators, output_type="latent", **options).images
    found = ours.draw(texts, negative_prompt=negative, seed=[11, 12], output_type="latent", **options)
    close(found, wanted, 1e-4)
    with torch.no_grad():
        pixels = theirs.vae.decode(wanted / theirs.vae.config.scaling_factor).sample
    close(ours.decode(wanted), (pixels / 2 + 0.5).clamp(0, 1))


def test_the_same_picture_after_a_full_run(pair):
    ours, theirs, _ = pair
    for options in ({"guidance_scale": 1.0}, {"guidance_scale": 5.0, "negative_prompt": "big"}, {}):
        given = {"num_inference_steps": 12, "latents": noise(1, 4, 8, 8), **options}
        found = ours.draw("a red apple", **given)
        wanted = theirs("a red apple", **given).images[0]
        assert isinstance(found, Image.Image) and found.size == wanted.size == (32, 32)
        assert np.abs(np.asarray(found, int) - np.asarray(wanted, int)).max() <= 1


def test_states_in_place_of_texts(pair):
    ours, theirs, _ = pair
    states, without = ours.encode_prompt("a red apple"), noise(1, 77, 12, seed=4)
    with torch.no_grad():
        expected, _ = theirs.encode_prompt("a red apple", "cpu", 1, False)
    close(states, expected)
    given = {"prompt_embeds": states, "negative_prompt_embeds": without, "latents": noise(1, 4, 8, 8), **APPLE}
    close(ours.draw(**given), theirs(**given).images, 1e-4)


def test_several_pictures_and_sizes(pair):
    ours, theirs, _ = pair
    given = {"num_images_per_prompt": 2, "latents": noise(4, 4, 6, 10), "height": 24, "width": 40, **APPLE}
    close(ours.draw(["a", "the pear"], **given), theirs(["a", "the pear"], **given).images, 1e-4)
    assert ours.draw("a", num_inference_steps=1, latents=noise(1, 4, 6, 10)).size == (40, 24)
    assert ours.draw("a", num_inference_steps=1, width=40).size == (40, 32)
    pixels = ours.draw(["a", "pear"], num_inference_steps=1, output_type="pt")
    assert pixels.shape == (2, 3, 32, 32) and pixels.min() >= 0 and pixels.max() <= 1
    assert len(ours.draw(["a"], num_inference_steps=1)) == 1
    assert len(ours.draw("a", num_inference_steps=1, num_images_per_prompt=3)) == 3


@pytest.mark.parametrize("scheduler", ["ddim", "ddpm", "euler-ancestral", "dpm++-sde"])
def test_a_seed_gives_the_same_picture_in_any_batch(pair, scheduler):
    ours = pair[0]
    options = {"scheduler": scheduler, **APPLE}
    alone = ours.draw("a red apple", seed=7, **options)
    close(ours.draw(["the pear", "a red apple", "a"], seed=7, **options)[1:2], alone, 1e-4)
    close(ours.draw(["a red apple", "a red apple"], seed=[3, 7], **options)[1:], alone, 1e-4)
    close(ours.draw("a red apple", num_images_per_prompt=3, seed=5, **options)[2:], alone, 1e-4)
    assert not torch.allclose(ours.draw("a red apple", seed=8, **options), alone)


def img2img_noise(seed, count=1):
    """What diffusers draws of a generator: first for the latent's spread, then the noise."""
    generator = torch.Generator().manual_seed(seed)
    torch.randn(count, 4, 8, 8, generator=generator)
    return torch.randn(count, 4, 8, 8, generator=generator)


@pytest.mark.parametrize("scheduler", ["plms", "ddim", "euler", "dpm++"])
@pytest.mark.parametrize("strength", [0.5, 0.75, 1.0])
def test_from_a_picture(pair, scheduler, strength):
    ours, theirs, _ = pair
    parts = {**theirs.components, "scheduler": as_theirs(ours, scheduler)}
    reference = diffusers.StableDiffusionImg2ImgPipeline(**parts, requires_safety_checker=False)
    reference.set_progress_bar_config(disable=True)
    given = {"num_inference_steps": 8, "strength": strength, "image": photo(), "output_type": "latent"}
    wanted = reference("a red apple", generator=torch.Generator().manual_seed(5), **given).images
    found = ours.draw("a red apple", latents=img2img_noise(5), scheduler=scheduler, **given)
    close(found, wanted, 1e-4)


def as_theirs(ours, name):
    from clearhead.generate.diffusion import other_scheduler

    config = other_scheduler(ours.scheduler, name).config
    return getattr(diffusers, config.class_name).from_config(config.to_dict())


@pytest.mark.parametrize("scheduler", ["plms", "ddim", "euler", "dpm++"])
@pytest.mark.parametrize("strength", [0.6, 1.0])
@pytest.mark.parametrize("trained_for_it", [False, True])
def test_filling_in(pair, filling, scheduler, strength, trained_for_it):
    ours, theirs, _ = filling if trained_for_it else pair
    parts = {**theirs.components, "scheduler": as_theirs(ours, scheduler)}
    reference = diffusers.StableDiffusionInpaintPipeline(**parts, requires_safety_checker=False)
    reference.set_progress_bar_config(disable=True)
    given = {"image": photo(), "mask_image": mask(), "num_inference_steps": 8, "strength": strength}
    given["output_type"] = "latent"
    generator = torch.Generator().manual_seed(5)
    wanted = reference("a red apple", generator=generator, height=32, width=32, **given).images
    generator = torch.Generator().manual_seed(5)
    if strength < 1 or not trained_for_it:  # then the picture's latent is drawn first
        torch.randn(1, 4, 8, 8, generator=generator)
    given["latents"] = torch.randn(1, 4, 8, 8, generator=generator)
    close(ours.draw("a red apple", scheduler=scheduler, **given), wanted, 1e-4)


def test_what_the_mask_leaves_stays(pair):
    ours = pair[0]
    found = ours.draw("a", image=photo(), mask_image=mask(), seed=1, num_inference_steps=3, output_type="latent")
    with torch.no_grad():
        pixels = torch.from_numpy(np.array(photo())).permute(2, 0, 1)[None] / 127.5 - 1
        latent = ours.vae.encode(pixels).latent_dist.mean * ours.vae.config.scaling_factor
    close(found[..., :4], latent[..., :4], 1e-4)
    assert not torch.allclose(found[..., 4:], latent[..., 4:])


def test_pictures_in_other_forms(pair, tmp_path):
    ours = pair[0]
    options = {"seed": 2, **APPLE}
    photo().save(tmp_path / "a.png")
    wanted = ours.draw("a", image=photo(), **options)
    tensor = torch.from_numpy(np.array(photo())).permute(2, 0, 1) / 255
    for form in (tmp_path / "a.png", str(tmp_path / "a.png"), [photo()], np.asarray(photo()), tensor, tensor[None]):
        close(ours.draw("a", image=form, **options), wanted, 1e-4)
    latent = noise(1, 4, 8, 8)
    assert ours.draw("a", image=latent, strength=0.5, **options).shape == latent.shape
    assert ours.draw(["a", "pear"], image=[photo(), photo(seed=1)], **options).shape[0] == 2


def test_steps_are_told(pair):
    ours = pair[0]
    told, steps = [], []
    given = {"seed": 1, "num_inference_steps": 5, "output_type": "latent"}
    drawn = ours.draw("a", callback=lambda *step: told.append(step), on_step=steps.append, **given)
    assert [step[0] for step in told] == list(range(6)) and [s.count for s in steps] == [
        6
    ] * 6  # one time visited twice
    assert torch.equal(told[-1][2], drawn) and [int(s.timestep) for s in steps] == [int(t) for _, t, _ in told]
    # near the end, the predicted picture is the drawn one, and the latents of the first steps are not
    far, near = ((s.predicted - drawn).abs().mean() for s in (steps[0], steps[-1]))
    assert near < far


def test_saved_folders_open_in_diffusers(pair, filling, tmp_path):
    for ours, theirs, folder in (pair, filling):
        where = tmp_path / folder.name
        ours.save(where)
        cls = type(theirs)
        back = cls.from_pretrained(where)
        assert type(back.scheduler) is type(theirs.scheduler) and back.safety_checker is None
        again = ch.load(where)
        for name in ("unet", "vae", "text_encoder"):
            wanted = getattr(theirs, name).state_dict()
            assert all(torch.equal(getattr(back, name).state_dict()[key], value) for key, value in wanted.items())
        assert back.tokenizer("a red apple")["input_ids"] == again.tokenizer("a red apple")["input_ids"]
        if cls is diffusers.StableDiffusionPipeline:
            back.set_progress_bar_config(disable=True)
            given = {"latents": noise(1, 4, 8, 8), **APPLE}
            close(again.draw("a red apple", **given), back("a red apple", **given).images, 1e-4)
        with pytest.raises(CheckpointError, match="not empty"):
            ours.save(where)
        (where / "notes.txt").write_text("mine")
        ours.save(where, overwrite=True)
        assert (where / "notes.txt").read_text() == "mine" and ch.load(where).unet.num_parameters()


def test_folders_as_people_have_them(pair, tmp_path):
    ours, theirs, folder = pair
    given = {"latents": noise(1, 4, 8, 8), **APPLE}
    wanted = ours.draw("a red apple", **given)
    # half precision files alone; the text tower without its prefix; parts that nobody needs
    theirs.save_pretrained(tmp_path / "fp16", variant="fp16")
    assert not list((tmp_path / "fp16").glob("*/*model.safetensors"))
    close(ch.load(tmp_path / "fp16").draw("a red apple", **given), wanted)
    shutil.copytree(folder, tmp_path / "plain")
    path = tmp_path / "plain" / "text_encoder" / "model.safetensors"
    tensors = load_file(path)
    names = {name.removeprefix("text_model."): tensor for name, tensor in tensors.items()}
    save_file(names if names.keys() != tensors.keys() else {f"text_model.{n}": t for n, t in tensors.items()}, path)
    index = tmp_path / "plain" / "model_index.json"
    raw = json.loads(index.read_text())
    raw |= {
        "safety_checker": ["stable_diffusion", "StableDiffusionSafetyChecker"],
        "feature_extractor": ["transformers", "CLIPImageProcessor"],
        "requires_safety_checker": True,
    }
    index.write_text(json.dumps(raw))
    close(ch.load(tmp_path / "plain").draw("a red apple", **given), wanted)


def test_bfloat16(pair):
    ours = ch.load(pair[2], dtype="bfloat16")
    assert ours.unet.dtype == ours.vae.dtype == ours.text_encoder.dtype == torch.bfloat16
    drawn = ours.draw("a", seed=1, num_inference_steps=2, output_type="latent")
    assert drawn.dtype == torch.bfloat16
    assert ours.draw("a", seed=1, num_inference_steps=2).size == (32, 32)


def test_a_scheduler_is_set_by_name(pair):
    ours = ch.load(pair[2])
    given = {"latents": noise(1, 4, 8, 8), **APPLE}
    wanted = ours.draw("a", scheduler="euler", **given)
    ours.scheduler = "euler"
    assert ours.scheduler.config.class_name == "EulerDiscreteScheduler"
    close(ours.draw("a", **given), wanted)
    with pytest.raises(InputError, match="ddim"):
        ours.draw("a", scheduler="dim")


def test_what_was_cut_is_said(pair, caplog):
    with caplog.at_level(logging.WARNING, "clearhead"):
        pair[0].draw("a red apple " * 40 + "on the table of wood", num_inference_steps=1, output_type="latent")
    assert "77" in caplog.text and "table of wood" in caplog.text


def test_what_fits_is_not_talked_about(pair, caplog):
    pair[0].draw("a red apple", num_inference_steps=1, output_type="latent")
    assert not caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"width": 30}, r"multiple of 4.*32 × 32"),
        ({"height": 5}, r"32 × 4"),
        ({"image": photo(), "strength": 0}, "strength"),
        ({"image": photo(), "strength": 2}, "strength"),
        ({"image": photo(), "strength": 0.1, "num_inference_steps": 5}, "none of the 5 steps"),
        ({"strength": 0.5}, "image="),
        ({"mask_image": mask()}, "image="),
        ({"num_inference_steps": 0}, "num_inference_steps"),
        ({"num_inference_steps": 2000}, "1000"),
        ({"guidance_scale": -1}, "guidance_scale"),
        ({"guidance": 3}, "guidance_scale"),
        ({"output_type": "jpg"}, "output_type"),
        ({"seed": -1}, "seed"),
        ({"seed": [1, 2]}, "2 seeds"),
        ({"latents": noise(1, 3, 8, 8)}, "latents"),
        ({"latents": noise(2, 4, 8, 8)}, "latents"),
        ({"latents": noise(1, 4, 8, 8), "width": 64}, "decide"),
        ({"latents": noise(1, 4, 8, 8), "image": photo(), "width": 64, "height": 32}, "decide"),
        ({"prompt_embeds": noise(1, 77, 12)}, "prompt_embeds"),
        ({"negative_prompt": ["a", "b"]}, "negative"),
        ({"image": [photo(), photo()]}, "2 pictures"),
        ({"image": "nothing.png"}, "no picture"),
        ({"image": noise(1, 5, 8, 8)}, "no picture"),
        ({"image": Image.new("RGB", (3, 3))}, "3 × 3"),
    ],
)
def test_what_does_not_fit_is_said(pair, options, words):
    with pytest.raises(InputError, match=words):
        pair[0].draw("a red apple", **{"num_inference_steps": 2, **options})


def test_texts_that_are_none(pair, filling):
    for wrong in (None, 3, [], ["a", None]):
        with pytest.raises(InputError):
            pair[0].draw(wrong, num_inference_steps=1)
    with pytest.raises(InputError, match="mask_image"):
        filling[0].draw("a", num_inference_steps=1)


def test_odd_pictures(pair, caplog):
    """Grey, palette, transparent, CMYK, and of a size that does not fit."""
    ours = pair[0]
    for mode in ("L", "P", "RGBA", "CMYK", "LA", "1"):
        assert ours.draw("a", image=photo().convert(mode), seed=1, **APPLE).shape == (1, 4, 8, 8)
    with caplog.at_level(logging.WARNING, "clearhead"):
        assert ours.draw("a", image=photo(38, 33), seed=1, num_inference_steps=2).size == (36, 32)
    assert "38 × 33" in caplog.text and "36 × 32" in caplog.text


def test_numbers_that_are_none_are_noticed(pair):
    ours = ch.load(pair[2], dtype="float16")
    with torch.no_grad():
        ours.unet.output.bias.fill_(6e4)
    with pytest.raises(InputError, match="bfloat16"):
        ours.draw("a", num_inference_steps=4, seed=1, scheduler="ddim")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f, i: shutil.rmtree(f / "vae"), "vae"),
        (lambda f, i: (f / "unet" / "config.json").unlink(), "config.json"),
        (lambda f, i: (f / "scheduler" / "scheduler_config.json").unlink(), "scheduler_config.json"),
        (lambda f, i: i.pop("unet"), "unet"),
        (lambda f, i: i.update(_class_name="StableDiffusionXLPipeline"), "XL"),
        (lambda f, i: i.update(scheduler=["diffusers", "UniPCMultistepScheduler"]), "UniPC"),
        (lambda f, i: i.update(text_encoder=["transformers", "T5EncoderModel"]), "T5EncoderModel"),
        (lambda f, i: i.update(controlnet=["diffusers", "ControlNetModel"]), "controlnet"),
        (lambda f, i: (f / "vae" / "diffusion_pytorch_model.safetensors").write_bytes(b"no"), "safetensors"),
    ],
)
def test_a_folder_that_is_not_whole(pair, change, words, tmp_path):
    folder = tmp_path / "sd"
    shutil.copytree(pair[2], folder)
    index = json.loads((folder / "model_index.json").read_text())
    change(folder, index)
    (folder / "model_index.json").write_text(json.dumps(index))
    with pytest.raises((CheckpointError, ConfigError), match=words):
        ch.load(folder)


def test_parts_that_do_not_belong_together(pair, tmp_path):
    shutil.copytree(pair[2], tmp_path / "sd")
    pipeline(tmp_path / "other", 8, unet={**PLAIN, "cross_attention_dim": 20})
    shutil.rmtree(tmp_path / "sd" / "unet")
    shutil.copytree(tmp_path / "other" / "unet", tmp_path / "sd" / "unet")
    with pytest.raises(ClearheadError, match="20"):
        ch.load(tmp_path / "sd")
