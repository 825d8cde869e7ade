"""clearhead draw: files, the gallery of expected pictures, and what is refused before anything is drawn."""

import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from clearhead.cli import app
from clearhead.errors import ClearheadError
from clearhead.views.terminal.picture import half_blocks
from tests.diffusion.pipelines import pipeline
from tests.diffusion.test_draw import PLAIN, mask, photo


def run(*words):
    return CliRunner().invoke(app, ["draw", *map(str, words)], env={"COLUMNS": "120"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sd") / "sd"
    pipeline(path, 3, unet=PLAIN)
    return str(path)


def test_a_picture_and_its_gallery(folder, tmp_path):
    photo().save(tmp_path / "sketch.png")
    mask().save(tmp_path / "mask.png")
    options = ["-m", folder, "--steps", "3", "--seed", "1", "--guidance", "4"]
    done = run("a red apple", "-o", tmp_path / "a.png", "--gallery", tmp_path / "g.png", *options)
    assert done.exit_code == 0, done.exception
    drawn, sheet = Image.open(tmp_path / "a.png"), Image.open(tmp_path / "g.png")
    assert drawn.size == (32, 32)
    assert sheet.size == (5 * 32, 32)  # three steps, one of them visited twice, and the picture
    assert sheet.crop((4 * 32, 0, 5 * 32, 32)).tobytes() == drawn.tobytes()
    done = run(
        "a pear", "-o", tmp_path / "b.webp", "-n", "2", "--negative", "red", "--image", tmp_path / "sketch.png",
        "--mask", tmp_path / "mask.png", "--strength", "0.7", "--scheduler", "euler", *options,
    )  # fmt: skip
    assert done.exit_code == 0, done.exception
    assert Image.open(tmp_path / "b-1.webp").size == Image.open(tmp_path / "b-2.webp").size == (32, 32)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "apple.txt"], ".png"),
        (["-o", "nowhere/apple.png"], "no folder"),
        (["--steps", "0"], "num_inference_steps"),
        (["--image", "nothing.png"], "nothing.png"),
        (["--strength", "0.5"], "image"),
        (["--width", "33"], "multiple of 4"),
        (["--scheduler", "heun"], "euler"),
        (["-m", "random-gpt2"], "does not draw"),
    ],
)
def test_what_is_refused(folder, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("a red apple", "-m", folder, *arguments)
    assert isinstance(done.exception, ClearheadError) and words in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_other_verbs_send_here(folder):
    done = CliRunner().invoke(app, ["generate", "a red apple", "-m", folder])
    assert isinstance(done.exception, ClearheadError) and "clearhead draw" in str(done.exception)


def test_a_picture_in_the_terminal():
    picture = Image.new("RGB", (4, 4), (255, 0, 0))
    picture.paste((0, 0, 255), (0, 2, 4, 4))
    text = half_blocks(picture, columns=2)
    assert text.plain == "▀▀"
    console = Console(color_system="truecolor", force_terminal=True, width=20)
    with console.capture() as shown:
        console.print(text)
    assert "38;2;255;0;0" in shown.get() and "48;2;0;0;255" in shown.get()
