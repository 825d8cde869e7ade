"""What nobody should type, and somebody will: one sentence, the right one, and nothing on disk."""

import pytest

from tests.cli.test_cli import run

GENERATE = ["generate", "The", "-n", "3"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([*GENERATE, "--num-beams", "10000000000"], "GiB"),
        ([*GENERATE, "--temperature", "1e300"], "of a size below 2 to the power of 63"),
        ([*GENERATE, "--presence-penalty", "1e308"], "of a size below 2 to the power of 63"),
        ([*GENERATE, "--top-p", "1e300"], "above 0 and at most 1"),
        ([*GENERATE, "--length-penalty", "2"], "length_penalty has no effect without num_beams"),
        ([*GENERATE, "--early-stopping", "never"], "early_stopping has no effect without num_beams"),
        ([*GENERATE, "--num-assistant-tokens", "3"], "no effect without assistant_model"),
        ([*GENERATE, "--num-beams", "2", "--diversity-penalty", "1"], "no effect without num_beam_groups"),
        ([*GENERATE, "--max-length", "30"], "max_length has no effect beside max_new_tokens"),
        (["tokenize", "--train", "nothere.txt", "--save", "x"], "nothere.txt does not exist. Check the name."),
        (["tokenize", "--train", __file__, "--save", f"{__file__}/x"], "no folder that you may write to"),
        (["explain", "saliency", "The", "--set", "target="], "--set target= says nothing"),
        (["explain", "attention", "The", "--json", "--csv"], "give one of them"),
        (["walk", "The", "--json", "--csv"], "give one of them"),
        (["bench", "decode", "-m", "storys"], "Did you mean stories"),
        (["tokenize", "--train", __file__, "--vocab-size", "9999999999", "--save", "x"], "from 1 to 10,000,000"),
        (["explain", "--list", "--csv"], "with --json"),
        ([*GENERATE, "--json-schema", "/dev/zero"], "/dev/zero is not valid JSON"),
        (["classify", "--file", "/dev/null"], "no plain file"),
        (["train", "language-model", "data.train=/dev/null", "out=x"], "no plain file"),
        (["walk", "-"], "cannot be the text here"),
        (["walk", "The", "--overwrite"], "goes with --save"),
        (["explain", "attention", "The", "--show"], "TEXT is for a question that is asked"),
        (["explain", "--list", "--save", "x.html"], "--save is for a question that is asked"),
        (["models", "--json", "describe", "gpt2"], "it stands behind it"),
        (["train", "--list", "--json"], "--list and --json do not go together"),
        (["train", "language-model", "--show", "--dry-run"], "--show and --dry-run do not go together"),
        (["train", "language-model", "--watch", "x"], "--watch and a recipe do not go together"),
    ],
)
def test_one_sentence(words, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*words, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hf"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert says in " ".join(done.stderr.split())
    assert "iter(" not in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "hf"] == []
