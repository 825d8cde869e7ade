"""Stable Diffusion as one file with the original names: the same models as in diffusers' folder."""

import re

import diffusers
import pytest
import torch
from safetensors.torch import save_file

import clearhead as ch
from clearhead.errors import CheckpointError, InputError
from tests.diffusion import reference
from tests.diffusion.pipelines import clip_tokenizer
from tests.diffusion.reference import close

WIDTH = 64
RESNET = {
    "norm1": "in_layers.0",
    "conv1": "in_layers.2",
    "time_emb_proj": "emb_layers.1",
    "norm2": "out_layers.0",
    "conv2": "out_layers.3",
    "conv_shortcut": "skip_connection",
}


def original_unet(state, layers):
    """diffusers' names -> the original ones, written down from the published files."""
    fixed = {
        "time_embedding.linear_1": "time_embed.0",
        "time_embedding.linear_2": "time_embed.2",
        "conv_in": "input_blocks.0.0",
        "conv_norm_out": "out.0",
        "conv_out": "out.2",
    }
    attends = {tuple(map(int, m.groups())) for n in state if (m := re.match(r"up_blocks\.(\d+)\.attentions\.(\d+)", n))}
    for name, tensor in state.items():
        new = name
        for ours, theirs in fixed.items():
            new = re.sub(rf"^{ours}\.", f"{theirs}.", new)
        if m := re.match(r"mid_block\.(resnets|attentions)\.(\d)\.(.*)", name):
            new = f"middle_block.{1 if m[1] == 'attentions' else 2 * int(m[2])}.{m[3]}"
        if m := re.match(r"(down|up)_blocks\.(\d+)\.(resnets|attentions)\.(\d+)\.(.*)", name):
            number = int(m[2]) * (layers + 1) + int(m[4]) + (m[1] == "down")
            side = "input" if m[1] == "down" else "output"
            new = f"{side}_blocks.{number}.{int(m[3] == 'attentions')}.{m[5]}"
        if m := re.match(r"down_blocks\.(\d+)\.downsamplers\.0\.conv\.(.*)", name):
            new = f"input_blocks.{(int(m[1]) + 1) * (layers + 1)}.0.op.{m[2]}"
        if m := re.match(r"up_blocks\.(\d+)\.upsamplers\.0\.(.*)", name):
            place = int(m[1])
            new = f"output_blocks.{place * (layers + 1) + layers}.{1 + ((place, layers) in attends)}.{m[2]}"
        if "transformer" not in new:
            for ours, theirs in RESNET.items():
                new = re.sub(rf"\.{ours}\.", f".{theirs}.", new)
        yield f"model.diffusion_model.{new}", tensor


def original_vae(state, blocks):
    for name, tensor in state.items():
        new = name.replace("conv_norm_out", "norm_out").replace("conv_shortcut", "nin_shortcut")
        new = re.sub(r"down_blocks\.(\d+)\.resnets", r"down.\1.block", new)
        new = re.sub(r"down_blocks\.(\d+)\.downsamplers\.0", r"down.\1.downsample", new)
        new = re.sub(r"up_blocks\.(\d+)\.resnets", lambda m: f"up.{blocks - 1 - int(m[1])}.block", new)
        new = re.sub(r"up_blocks\.(\d+)\.upsamplers\.0", lambda m: f"up.{blocks - 1 - int(m[1])}.upsample", new)
        new = re.sub(r"mid_block\.resnets\.(\d)", lambda m: f"mid.block_{int(m[1]) + 1}", new)
        new = new.replace("mid_block.attentions.0.group_norm", "mid.attn_1.norm")
        new = new.replace("mid_block.attentions.0.to_out.0", "mid.attn_1.proj_out")
        new = re.sub(r"mid_block\.attentions\.0\.to_([qkv])", r"mid.attn_1.\1", new)
        matrix = "attn_1" in new and tensor.ndim == 2
        yield f"first_stage_model.{new}", tensor[:, :, None, None] if matrix else tensor


def original_text(model, second):
    state = {n.removeprefix("text_model."): t for n, t in model.state_dict().items()}
    if not second:
        yield from ((f"cond_stage_model.transformer.text_model.{n}", t) for n, t in state.items())
        return
    for name, tensor in state.items():
        new = name.replace("encoder.layers", "transformer.resblocks").replace("final_layer_norm", "ln_final")
        new = new.replace("layer_norm", "ln_").replace("mlp.fc1", "mlp.c_fc").replace("mlp.fc2", "mlp.c_proj")
        new = new.replace("embeddings.token_embedding", "token_embedding").replace(
            "self_attn.out_proj", "attn.out_proj"
        )
        new = new.replace("embeddings.position_embedding.weight", "positional_embedding")
        if ".q_proj." in new:
            joined = torch.cat([state[name.replace(".q_proj.", f".{x}_proj.")] for x in "qkv"])
            new = re.sub(r"self_attn\.q_proj\.(weight|bias)", r"attn.in_proj_\1", new)
            yield f"cond_stage_model.model.{new}", joined
        elif ".k_proj." not in new and ".v_proj." not in new:
            yield f"cond_stage_model.model.{new}", tensor
    yield "cond_stage_model.model.text_projection", torch.zeros(WIDTH, WIDTH)
    yield "cond_stage_model.model.logit_scale", torch.tensor(1.0)


def parts(second, in_channels=4):
    channels = (64, 128) if second else (32, 64)
    unet = reference.unet(
        1,
        in_channels=in_channels,
        center_input_sample=False,
        flip_sin_to_cos=True,
        freq_shift=0,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        mid_block_type="UNetMidBlock2DCrossAttn",
        block_out_channels=channels,
        layers_per_block=2,
        only_cross_attention=False,
        downsample_padding=1,
        mid_block_scale_factor=1,
        act_fn="silu",
        norm_num_groups=32,
        norm_eps=1e-5,
        cross_attention_dim=WIDTH,
        transformer_layers_per_block=1,
        attention_head_dim=[1, 2] if second else 8,
        use_linear_projection=second,
        resnet_time_scale_shift="default",
        time_embedding_dim=None,
        time_embedding_act_fn=None,
        timestep_post_act=None,
        conv_in_kernel=3,
        conv_out_kernel=3,
    )
    options = {"latent_channels": 4, "norm_num_groups": 32, "act_fn": "silu", "scaling_factor": 0.18215}
    options |= {"use_quant_conv": True, "use_post_quant_conv": True, "mid_block_add_attention": True}
    vae = reference.vae(1, block_out_channels=(32, 64), layers_per_block=2, **options)
    act = "gelu" if second else "quick_gelu"
    sizes = {"hidden_size": WIDTH, "intermediate_size": 128, "num_attention_heads": 1, "num_hidden_layers": 3}
    return unet, vae, reference.text_encoder(1, hidden_act=act, vocab_size=200, **sizes)


def single_file(path, second, in_channels=4, metadata=None, drop=(), **more):
    unet, vae, text = parts(second, in_channels)
    tensors = dict(original_unet(unet.state_dict(), 2)) | dict(original_vae(vae.state_dict(), 2))
    tensors |= dict(original_text(text, second)) | more
    tensors |= {"betas": torch.zeros(1000), "model_ema.decay": torch.tensor(0.9)}
    tensors = {
        name: t.clone().contiguous() for name, t in tensors.items() if not name.startswith(tuple(drop) or ("?",))
    }
    save_file(tensors, path, metadata=metadata)
    return unet, vae, text


@pytest.mark.parametrize("second", [False, True])
def test_the_same_models(second, tmp_path):
    unet, vae, text = single_file(tmp_path / "sd.safetensors", second)
    clip_tokenizer(tmp_path)
    ours = ch.load(tmp_path / "sd.safetensors")
    sample, states = torch.randn(1, 4, 8, 8), torch.randn(1, 5, WIDTH)
    ids = torch.tensor([[3, 5, 9, 108]])
    with torch.no_grad():
        close(ours.unet(sample, 7, states).sample, unet(sample, 7, states).sample)
        close(ours.vae(torch.ones(1, 3, 8, 8)).sample, vae(torch.ones(1, 3, 8, 8)).sample)
        if second:  # the last layer is not used
            text.encoder.layers = text.encoder.layers[:-1]
        close(ours.text_encoder(ids).last_hidden_state, text(ids).last_hidden_state)
    assert ours.scheduler.config.prediction_type == ("v_prediction" if second else "epsilon")
    assert ours.draw("a red apple", num_inference_steps=1, width=16, height=16, seed=1).size == (16, 16)
    ours.save(tmp_path / "folder")
    back = diffusers.UNet2DConditionModel.from_pretrained(tmp_path / "folder" / "unet").state_dict()
    assert all(torch.equal(back[name], tensor) for name, tensor in unet.state_dict().items())


@pytest.mark.parametrize("second", [False, True])
def test_diffusers_reads_the_same_file(second, tmp_path):
    """So that the names in this test are the published ones, and not only the other side of ours."""
    unet, vae, _ = single_file(tmp_path / "sd.safetensors", second)
    for model, part in ((unet, "unet"), (vae, "vae")):
        model.save_pretrained(tmp_path / "config" / part)
        options = {"config": str(tmp_path / "config"), "subfolder": part, "local_files_only": True}
        read = type(model).from_single_file(str(tmp_path / "sd.safetensors"), **options).state_dict()
        assert all(torch.equal(read[name], tensor) for name, tensor in model.state_dict().items())


def test_inpainting_and_metadata(tmp_path):
    single_file(tmp_path / "a.safetensors", False, in_channels=9)
    assert ch.load(tmp_path / "a.safetensors").fills_in
    single_file(tmp_path / "b.safetensors", True, metadata={"modelspec.prediction_type": "epsilon"})
    assert ch.load(tmp_path / "b.safetensors").scheduler.config.prediction_type == "epsilon"
    single_file(tmp_path / "c.safetensors", True, global_step=torch.tensor(875000))
    assert ch.load(tmp_path / "c.safetensors").scheduler.config.prediction_type == "epsilon"


def test_without_words_it_draws_from_states(tmp_path, caplog):
    single_file(tmp_path / "a.safetensors", False)
    ours = ch.load(tmp_path / "a.safetensors")
    assert "tokenizer" in caplog.text
    with pytest.raises(InputError, match=r"vocab\.json"):
        ours.draw("a red apple", num_inference_steps=1)
    states = torch.zeros(1, 4, WIDTH)
    options = {"num_inference_steps": 1, "width": 16, "height": 16, "negative_prompt_embeds": states}
    assert ours.draw(prompt_embeds=states, **options).size == (16, 16)
    clip_tokenizer(tmp_path / "words")
    assert ch.load(tmp_path / "a.safetensors", vocab=tmp_path / "words").tokenizer("a")["input_ids"]


def test_files_that_are_refused(tmp_path):
    torch.save({"state_dict": {}}, tmp_path / "model.ckpt")
    with pytest.raises(CheckpointError, match=r"pickle.*safetensors"):
        ch.load(tmp_path / "model.ckpt")
    single_file(tmp_path / "part.safetensors", False, drop=["first_stage_model."])
    with pytest.raises(CheckpointError, match="first_stage_model"):
        ch.load(tmp_path / "part.safetensors")
    single_file(tmp_path / "less.safetensors", False, drop=["model.diffusion_model.middle_block.1"])
    with pytest.raises(CheckpointError, match="mid_block"):
        ch.load(tmp_path / "less.safetensors")
    single_file(tmp_path / "odd.safetensors", False, drop=["model.diffusion_model.input_blocks.1."])
    with pytest.raises(CheckpointError):
        ch.load(tmp_path / "odd.safetensors")
    (tmp_path / "no.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="safetensors"):
        ch.load(tmp_path / "no.safetensors")
