"""Hub ids: fetched from a local stand-in for the hub, then found again without it."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from clearhead import hub
from clearhead.models import family
from tests.fork_server import run_python

from .fake_hub import serve

PROGRAM = """
import sys, torch
from clearhead import hub, zoo
from clearhead.errors import ClearheadError
try:
    folder = hub.locate(sys.argv[1], sys.argv[2] or None, zoo.hint(sys.argv[1]))
    model = hub.load_model(folder)
    print(sum(p.detach().double().abs().sum().item() for p in model.parameters()))
except ClearheadError as error:
    print("refused:", error)
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    gpt2 = family("gpt2")
    model = gpt2.make(gpt2.config(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2))
    folder = tmp_path_factory.mktemp("repo") / "whole"
    hub.save_model(model, folder)
    sharded = folder.parent / "sharded"
    hub.save_model(model, sharded, max_shard_size=3000)
    assert len(list(sharded.glob("model-*.safetensors"))) > 2
    return folder, sharded, sum(p.detach().double().abs().sum().item() for p in model.parameters())


def run(home, repo, revision="", endpoint="http://127.0.0.1:9", program=PROGRAM, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    env = {**clean, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, **env}
    result = run_python(["-c", program, repo, revision], env)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_fetch_then_offline(checkpoint, tmp_path):
    whole, sharded, total = checkpoint
    with serve({"someone/whole": whole, "someone/sharded": sharded}, revisions=("main", "v1")) as (url, seen):
        assert float(run(tmp_path, "someone/whole", endpoint=url)) == pytest.approx(total)
        assert float(run(tmp_path, "someone/sharded", "v1", endpoint=url)) == pytest.approx(total)
        assert not any("pytorch_model" in path for _, path, _ in seen)
    # the hub is gone; the cache is not
    assert float(run(tmp_path, "someone/whole", HF_HUB_OFFLINE="1")) == pytest.approx(total)
    assert float(run(tmp_path, "someone/sharded", "v1", HF_HUB_OFFLINE="1")) == pytest.approx(total)


def test_a_repository_of_several_parts(checkpoint, tmp_path):
    whole, sharded, _ = checkpoint
    folder = tmp_path / "parts"
    shutil.copytree(whole, folder / "first")
    shutil.copytree(sharded, folder / "second")
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "scheduler_config.json").write_text("{}")
    parts = {"first": ("transformers", "GPT2LMHeadModel"), "second": ("transformers", "GPT2LMHeadModel")}
    hub.write_index(folder, hub.ModelIndex("Pair", {**parts, "scheduler": ("diffusers", "DDIMScheduler")}))
    (folder / "first" / "notes.txt").write_text("nobody asks for this")
    program = "import sys; from clearhead import hub; print(hub.locate(sys.argv[1]))"
    with serve({"someone/parts": folder}) as (url, seen):
        fetched = Path(run(tmp_path / "home", "someone/parts", endpoint=url, program=program))
        assert not any("notes.txt" in path for _, path, _ in seen)
    for name in parts:
        assert {p.name for p in (fetched / name).iterdir()} == {p.name for p in (folder / name).iterdir()} - {
            "notes.txt"
        }
        assert hub.load_model(fetched / name).num_parameters() > 0
    assert (fetched / "scheduler" / "scheduler_config.json").is_file()
    assert run(tmp_path / "home", "someone/parts", program=program, HF_HUB_OFFLINE="1") == str(fetched)


def test_token_is_sent_and_private_repositories_say_so(checkpoint, tmp_path):
    whole, _, total = checkpoint
    with serve({"someone/private": whole}, private=("someone/private",)) as (url, _):
        refusal = run(tmp_path / "a", "someone/private", endpoint=url)
        assert "refused:" in refusal
        assert "HF_TOKEN" in refusal
        assert float(run(tmp_path / "b", "someone/private", endpoint=url, HF_TOKEN="hf_secret")) == pytest.approx(total)


def test_unknown_repository_and_revision(checkpoint, tmp_path):
    whole, _, _ = checkpoint
    with serve({"someone/whole": whole}) as (url, _):
        assert "no model 'someone/nothing'" in run(tmp_path, "someone/nothing", endpoint=url)
        assert "no revision 'v9'" in run(tmp_path, "someone/whole", "v9", endpoint=url)
        assert "Did you mean random-gpt2" in run(tmp_path, "randm-gpt2", endpoint=url)


@pytest.mark.parametrize("env", [{"HF_HUB_OFFLINE": "1"}, {}])
def test_no_network_says_how_to_get_it(tmp_path, env):
    message = run(tmp_path, "openai-community/gpt2", **env)
    assert "refused:" in message
    assert "hf download openai-community/gpt2" in message


def test_shard_index_of_a_repository_cannot_point_outside(checkpoint, tmp_path):
    _, sharded, _ = checkpoint
    bad = tmp_path / "bad"
    shutil.copytree(sharded, bad)
    index = bad / "model.safetensors.index.json"
    raw = json.loads(index.read_text())
    raw["weight_map"]["transformer.wte.weight"] = "../../secret.safetensors"
    index.write_text(json.dumps(raw))
    with serve({"someone/bad": bad}) as (url, seen):
        assert "refused:" in run(tmp_path / "home", "someone/bad", endpoint=url)
        assert not any("secret" in path for _, path, _ in seen)
