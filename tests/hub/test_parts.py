"""Folders of several parts: what is written is read, names stay inside the folder, unknown parts are named."""

import json

import pytest
import torch

from clearhead import hub
from clearhead.errors import CheckpointError, ClearheadError, ConfigError
from clearhead.files import atomic_folder
from clearhead.hub.parts import INDEX, ModelIndex, has_parts, part_folders, read_index, write_index
from clearhead.models.bert import FAMILY as BERT
from clearhead.models.gpt2 import FAMILY as GPT2

SIZES = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
PAIR = ModelIndex(
    "EncoderWriter",
    {"encoder": ("transformers", "BertModel"), "writer": ("transformers", "GPT2LMHeadModel")},
    {"requires_both": True},
)


@pytest.fixture
def pair(tmp_path):
    """Two models in one folder, saved as one."""
    models = {
        "encoder": BERT.make(BERT.config(**SIZES, intermediate_size=16), "features"),
        "writer": GPT2.make(GPT2.config(**SIZES), "causal-lm"),
    }
    folder = tmp_path / "pair"
    with atomic_folder(folder) as work:
        for name, model in models.items():
            hub.save_model(model, work / name)
        write_index(work, PAIR)
    return folder, models


def change(folder, **entries):
    raw = json.loads((folder / INDEX).read_text()) | entries
    (folder / INDEX).write_text(json.dumps(raw))


def test_what_is_written_is_read(pair):
    folder, models = pair
    assert has_parts(folder) and hub.locate(folder) == folder
    assert read_index(folder) == PAIR
    folders = part_folders(folder, known=models)
    assert folders == {name: folder / name for name in ("encoder", "writer")}
    for name, model in models.items():
        again = hub.load_model(folders[name])
        assert again.task == model.task
        for (key, ours), theirs in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, msg=key)


def test_diffusers_signs_are_understood(pair):
    folder, _ = pair
    change(folder, _diffusers_version="0.30.0", safety_checker=[None, None], feature_extractor=["transformers", "X"])
    assert list(read_index(folder).parts) == ["encoder", "writer", "feature_extractor"]
    assert list(part_folders(folder, ["encoder", "writer"], skipped=["feature_extractor"])) == ["encoder", "writer"]


def test_an_unknown_part_is_named(pair):
    folder, models = pair
    change(folder, unet=["diffusers", "UNet2DConditionModel"])
    with pytest.raises(ConfigError, match=r"unet \(diffusers\.UNet2DConditionModel\)\. Known: encoder, writer"):
        part_folders(folder, models)
    with pytest.raises(CheckpointError, match="lacks unet"):
        part_folders(folder, [*models, "unet"])


def test_a_part_that_is_a_link_out_of_the_folder_is_refused(pair, tmp_path):
    folder, models = pair
    (folder / "encoder").rename(folder / "elsewhere")
    (folder / "encoder").symlink_to(folder / "elsewhere")
    assert part_folders(folder, models)["encoder"] == folder / "encoder"  # inside it may lie anywhere
    (folder / "elsewhere").rename(tmp_path / "outside")
    (folder / "encoder").unlink()
    (folder / "encoder").symlink_to(tmp_path / "outside")
    with pytest.raises(CheckpointError, match=r"encoder is a link to .*outside its folder"):
        part_folders(folder, models)


@pytest.mark.parametrize("name", ["..", ".", "", "../secret", "/etc", "a/b", "a\\b", "C:", "a\0b"])
def test_no_name_leads_out_of_the_folder(pair, name):
    folder, _ = pair
    change(folder, **{name: ["transformers", "BertModel"]})
    with pytest.raises(CheckpointError, match="not the plain name of a folder"):
        read_index(folder)
    with pytest.raises(CheckpointError, match="not the plain name of a folder"):
        write_index(folder, ModelIndex("Any", {name: ("transformers", "BertModel")}))


def test_weights_may_have_the_name_that_diffusers_gives_them(pair):
    folder, models = pair
    part = folder / "encoder"
    (part / "model.safetensors").rename(part / "diffusion_pytorch_model.safetensors")
    assert hub.load_model(part).num_parameters() == models["encoder"].num_parameters()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"_class_name": 1}', '{"_class_name": "Any"}'])
def test_a_broken_index_is_an_error_in_words(tmp_path, text):
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ConfigError, match=INDEX):
        read_index(tmp_path)


def test_an_index_is_written_last(tmp_path):
    with pytest.raises(CheckpointError, match="lacks encoder, writer"):
        write_index(tmp_path, PAIR)
    assert not has_parts(tmp_path)
    with pytest.raises(CheckpointError, match=r"model_index\.json is missing"):
        read_index(tmp_path)


def test_loading_the_folder_as_one_model_says_what_it_is(pair):
    folder, _ = pair
    with pytest.raises(ClearheadError, match=r"EncoderWriter.*several parts \(encoder, writer\)"):
        hub.load_model(folder)
