"""The family tree is read off the models: what it says must be true of them."""

import json

import pytest
from typer.testing import CliRunner

from clearhead.cli import app
from clearhead.models import FAMILIES, family
from clearhead.models.compare import children, differences, features, lineage
from clearhead.models.gpt2 import FAMILY as GPT2
from clearhead.models.gpt2 import GPT2Config


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_has_features_and_a_place_in_the_tree(name):
    found = features(family(name))
    layers = {"recurrence"} if "recurrence" in found else {"positions", "attention", "feed-forward"}
    parts = set() if name == "word-vectors" else layers
    assert {"shape", "embedding", "heads for"} | parts <= set(found)
    assert lineage(name)[0] == "word-vectors"


def test_the_tree_holds_every_family_once():
    def below(parent):
        return [name for fam in children(parent) for name in (fam.name, *below(fam.name))]

    assert sorted(below(None)) == sorted(FAMILIES)


def test_differences_are_real():
    rows = {part: (a, b) for part, a, b in differences(family("bert"), family("gpt2"))}
    assert rows["norm"] == ("LayerNorm, post", "LayerNorm, pre, and one at the end")
    assert rows["feed-forward"] == ("gelu, 4 × wide", "gelu_new, 4 × wide")
    assert differences(family("bert"), family("bert")) == []
    gpt3 = {part: b for part, _, b in differences(family("gpt2"), family("gpt3"))}
    assert gpt3["sees"] == "every other layer only 128 positions back"
    assert "attention" not in gpt3


def test_a_change_of_config_shows():
    from dataclasses import replace

    odd = replace(
        GPT2, presets={"odd": {"activation_function": "relu", "intermediate_size": 1536, "scale_attn_weights": False}}
    )
    rows = {part: b for part, _, b in differences(GPT2, odd)}
    assert rows == {
        "attention": "q, k, v in one matrix, with biases, scores × 1",
        "feed-forward": "relu, 2 × wide",
    }
    assert GPT2Config().activation_function == "gelu_new"


def test_command_line():
    run = CliRunner()
    tree = json.loads(run.invoke(app, ["models", "tree", "--json"]).stdout)
    assert {entry["name"] for entry in tree} == set(FAMILIES)
    assert "gpt3" in run.invoke(app, ["models", "tree"]).stdout
    diff = run.invoke(app, ["models", "diff", "bert", "gpt2"]).stdout
    assert "LayerNorm, post" in diff
    assert "same parts" in run.invoke(app, ["models", "diff", "bert", "bert"]).stdout
