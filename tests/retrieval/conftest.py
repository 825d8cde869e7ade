"""A tiny encoder with random weights, in a folder: chunks of eight tokens are enough for it."""

import pytest

from tests.tiny import tiny_pipeline

WORDS = "the cat sat on the mat and the cat ran unbelievably a dog sat on the sofa".split()


def prose(seed: int, words: int) -> str:
    """Words in an order of its own."""
    return " ".join(WORDS[(seed * 7 + n * n + n * seed) % len(WORDS)] for n in range(words))


@pytest.fixture(scope="session")
def encoders(tmp_path_factory):
    """Two encoders of one shape, and one of another width."""
    root = tmp_path_factory.mktemp("encoders")
    for name, options in (("one", {"seed": 1}), ("two", {"seed": 2}), ("wide", {"hidden_size": 36, "seed": 3})):
        tiny_pipeline("bert", "features", **options).save(root / name)
    return {name: str(root / name) for name in ("one", "two", "wide")}
