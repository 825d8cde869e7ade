"""UNet and autoencoder: the same numbers as diffusers on random small configurations, in both directions."""

import json

import diffusers
import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead as ch
from clearhead.errors import CheckpointError, ConfigError, InputError
from clearhead.hub.diffusers_parts import load_part, write_part
from tests.diffusion.reference import TEXT_WIDTH, close, unet, vae

UNET, VAE = "UNet2DConditionModel", "AutoencoderKL"


def opened(reference, folder, **options):
    reference.save_pretrained(folder)
    return load_part(folder, type(reference).__name__, **options)


def inputs(reference, batch=2, size=(8, 8), seed=0):
    generator = torch.Generator().manual_seed(seed)
    sample = torch.randn(batch, reference.config.in_channels, *size, generator=generator)
    states = torch.randn(batch, 5, TEXT_WIDTH, generator=generator)
    return sample, torch.tensor([3, 951])[:batch], states


@pytest.mark.parametrize("seed", range(12))
def test_unet(seed, tmp_path):
    theirs = unet(seed)
    ours = opened(theirs, tmp_path / "unet")
    size = (8, 8) if seed % 2 else (7, 10)  # a size that cannot be halved evenly, too
    sample, steps, states = inputs(theirs, size=size, seed=seed)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1] * 5]) if seed % 3 == 0 else None
    with torch.no_grad():
        expected = theirs(sample, steps, states, encoder_attention_mask=mask).sample
        close(ours(sample, steps, states, encoder_attention_mask=mask).sample, expected)
        close(ours(sample, 7, states)[0], theirs(sample, 7, states)[0])
    write_part(tmp_path / "back", ours, 2**30)
    back = diffusers.UNet2DConditionModel.from_pretrained(tmp_path / "back")
    assert back.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(v, back.state_dict()[k]) for k, v in theirs.state_dict().items())
    for key, value in theirs.config.items():
        if not key.startswith("_"):
            same = list(value) if isinstance(value, tuple) else value
            assert (list(back.config[key]) if isinstance(back.config[key], tuple) else back.config[key]) == same, key


@pytest.mark.parametrize("seed", [1, 4])
def test_unet_gradients(seed, tmp_path):
    theirs = unet(seed)
    ours = opened(theirs, tmp_path / "unet")
    sample, steps, states = inputs(theirs, seed=seed)
    for model in (theirs, ours):
        model(sample, steps, states).sample.square().mean().backward()
    from clearhead.models.unet import checkpoint_map

    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for entry in checkpoint_map(ours.config, "features").entries:
        found = torch.cat([ours.get_parameter(name).grad for name in entry.ours])
        wanted = gradients[entry.theirs[0]]
        assert (found - wanted).abs().max() <= 1e-5 * max(wanted.abs().max(), gradients["conv_out.weight"].abs().max())


def test_unet_in_bfloat16(tmp_path):
    theirs = unet(2, upcast_attention=False)
    ours = opened(theirs, tmp_path / "unet", dtype=torch.bfloat16)
    sample, steps, states = (t.bfloat16() if t.is_floating_point() else t for t in inputs(theirs))
    with torch.no_grad():
        found, wanted = ours(sample, steps, states).sample, theirs.bfloat16()(sample, steps, states).sample
    assert found.dtype == torch.bfloat16
    close(found, wanted, 0.05)


@pytest.mark.parametrize("seed", range(6))
def test_autoencoder(seed, tmp_path):
    theirs = vae(seed)
    ours = opened(theirs, tmp_path / "vae")
    pixels = torch.randn(2, 3, 12, 20, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        expected, found = theirs.encode(pixels).latent_dist, ours.encode(pixels).latent_dist
        for name in ("mean", "std", "logvar", "var"):
            close(getattr(found, name), getattr(expected, name))
        close(found.kl(), expected.kl())
        drawn = [d.sample(torch.Generator().manual_seed(1)) for d in (found, expected)]
        close(*drawn)
        close(ours.decode(expected.mean).sample, theirs.decode(expected.mean).sample)
        close(ours(pixels).sample, theirs(pixels).sample)
    write_part(tmp_path / "back", ours, 2**30)
    back = diffusers.AutoencoderKL.from_pretrained(tmp_path / "back").state_dict()
    assert all(torch.equal(v, back[k]) for k, v in theirs.state_dict().items()) and len(back) == len(
        theirs.state_dict()
    )


def test_autoencoder_gradients(tmp_path):
    theirs = vae(3, mid_block_add_attention=True)
    ours = opened(theirs, tmp_path / "vae")
    pixels = [torch.linspace(-1, 1, 3 * 64).reshape(1, 3, 8, 8).requires_grad_() for _ in range(2)]
    for model, x in zip((theirs, ours), pixels, strict=True):
        model(x).sample.square().mean().backward()
    close(pixels[1].grad, pixels[0].grad)


def test_old_names_of_the_autoencoder(tmp_path):
    theirs = vae(0, mid_block_add_attention=True)
    theirs.save_pretrained(tmp_path)
    path = tmp_path / "diffusion_pytorch_model.safetensors"
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    tensors = {}
    for name, tensor in load_file(path).items():
        for new, before in old.items():
            name = name.replace(f".{new}.", f".{before}.")
        tensors[name] = tensor
    assert any("proj_attn" in name for name in tensors)
    save_file(tensors, path)
    pixels = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        close(load_part(tmp_path, VAE)(pixels).sample, theirs(pixels).sample)


def test_shards_and_variants(tmp_path):
    theirs = unet(5)
    wanted = theirs.state_dict()
    for name, options in {"shards": {"max_shard_size": "50KB"}, "fp16": {"variant": "fp16"}}.items():
        theirs.save_pretrained(tmp_path / name, **options)
        ours = load_part(tmp_path / name, UNET)
        assert torch.equal(ours.input.weight, wanted["conv_in.weight"])
    theirs.save_pretrained(tmp_path / "both", variant="fp16", max_shard_size="50KB")
    assert torch.equal(load_part(tmp_path / "both", UNET).input.weight, wanted["conv_in.weight"])
    write_part(tmp_path / "ours", ours, 50_000)
    assert (tmp_path / "ours" / "diffusion_pytorch_model.safetensors.index.json").is_file()
    back = diffusers.UNet2DConditionModel.from_pretrained(tmp_path / "ours").state_dict()
    assert all(torch.equal(back[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("dual_cross_attention", True),
        ("class_embed_type", "timestep"),
        ("num_class_embeds", 10),
        ("addition_embed_type", "text_time"),
        ("encoder_hid_dim", 8),
        ("time_cond_proj_dim", 256),
        ("time_embedding_type", "fourier"),
        ("attention_type", "gated"),
        ("down_block_types", ["AttnDownBlock2D", "DownBlock2D"]),
        ("mid_block_type", "UNetMidBlock2DSimpleCrossAttn"),
        ("act_fn", "tanh"),
        ("attention_head_dim", [1, 2, 3, 4, 5]),
        ("block_out_channels", [7, 9, 11]),
    ],
)
def test_what_is_not_built_is_refused_by_name(option, value, tmp_path):
    unet(1).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), option: value}))
    with pytest.raises(ConfigError) as refused:
        load_part(tmp_path, UNET)
    assert option in str(refused.value) or "channels" in str(refused.value)


def test_an_autoencoder_with_means_of_its_latents_is_refused(tmp_path):
    vae(0, latents_mean=[0.0] * 4, latents_std=[1.0] * 4).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="latents_mean"):
        load_part(tmp_path, VAE)


def test_weights_that_do_not_fit_are_told(tmp_path):
    unet(1).save_pretrained(tmp_path / "a")
    path = tmp_path / "a" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(path)
    del tensors["conv_in.weight"]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"conv_in\.weight"):
        load_part(tmp_path / "a", UNET)


def test_inputs_that_do_not_fit_are_told(tmp_path):
    theirs = unet(1)
    ours = opened(theirs, tmp_path)
    sample, steps, states = inputs(theirs)
    for arguments in [
        (sample[:, :2], steps, states),
        (sample[0], steps, states),
        (sample, steps, states[..., :3]),
        (sample, steps, states[:1]),
        (sample, torch.arange(3), states),
        ("a picture", steps, states),
    ]:
        with pytest.raises(InputError):
            ours(*arguments)


def test_inner_tensors_have_names(tmp_path):
    options = {
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
        "mid_block_type": "UNetMidBlock2DCrossAttn",
        "block_out_channels": (8, 16),
        "layers_per_block": 2,
        "attention_head_dim": 2,
        "transformer_layers_per_block": 1,
        "only_cross_attention": False,
    }
    theirs = unet(1, **options)
    ours = opened(theirs, tmp_path)
    sample, steps, states = inputs(theirs)
    with (
        torch.no_grad(),
        ch.trace(ours, "**.cross_attention.weights", "down.0.1.attention.weights", "**.output") as seen,
    ):
        traced = ours(sample, steps, states).sample
        close(traced, theirs(sample, steps, states).sample)
    assert seen["down.0.1.cross_attention.weights"].shape == (2, 2, 64, 5)
    assert seen["middle.cross_attention.weights"].shape == (2, 2, 16, 5)
    assert seen["up.1.2.cross_attention.weights"].shape == (2, 2, 64, 5)
    assert torch.allclose(seen["up.1.0.cross_attention.weights"].sum(-1), torch.ones(()), atol=1e-5)
    assert seen["down.0.1.attention.weights"].shape == (2, 2, 64, 64)
    assert seen["down.0.0.resnet.output"].shape == (2, 8, 8, 8)
    with torch.no_grad(), ch.trace(ours, replace={"middle.cross_attention.weights": lambda w: w * 0}):
        assert not torch.allclose(ours(sample, steps, states).sample, traced)
