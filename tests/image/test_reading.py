"""Pictures as people have them: odd, broken, huge."""

import struct
import subprocess
import sys
import zlib
from contextlib import suppress

import numpy as np
import pytest
import torch
from PIL import Image

from clearhead.errors import InputError
from clearhead.image import ImageProcessor, is_picture, pictures_in, read_picture
from tests.image.made import noise

PROCESS = ImageProcessor()


def pixels(raw):
    return PROCESS(raw)["pixel_values"]


def test_a_file_is_what_pillow_reads(tmp_path):
    for suffix in (".png", ".bmp", ".tiff", ".webp"):
        path = tmp_path / f"a{suffix}"
        noise(30, 20).save(path, **({"lossless": True} if suffix == ".webp" else {}))
        for raw in (path, str(path), path.read_bytes()):
            assert torch.equal(pixels(raw), pixels(noise(30, 20)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_photo_stands_upright(orientation, tmp_path):
    upright = noise(30, 20)
    turned = {
        2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }.get(orientation)  # fmt: skip
    stored = upright if turned is None else upright.transpose(turned)
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "photo.png", exif=exif)
    assert torch.equal(pixels(tmp_path / "photo.png"), pixels(upright))


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path):
    grey = np.asarray(noise(30, 20, "L"))
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    assert torch.equal(pixels(tmp_path / "deep.png"), pixels(grey))
    assert torch.equal(pixels(Image.fromarray(grey.astype(np.int32) * 257)), pixels(grey))
    assert torch.equal(pixels(Image.fromarray((grey / 255).astype(np.float32))), pixels(grey))


def test_of_an_animation_the_first_picture(tmp_path):
    frames = [noise(20, 20, "P", seed) for seed in range(3)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    Image.open(tmp_path / "a.gif").convert("RGB").save(tmp_path / "first.png")
    assert torch.equal(pixels(tmp_path / "a.gif"), pixels(tmp_path / "first.png"))


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it is this large, and holds hardly anything."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("width", "height"), [(12_000, 12_000), (60_000, 60_000)])
def test_a_huge_picture_is_refused_before_it_is_unpacked(width, height, tmp_path, recwarn):
    path = tmp_path / "bomb.png"
    path.write_bytes(bomb(width, height))
    with pytest.raises(InputError, match="above 120 million are refused"):
        read_picture(path)
    assert not recwarn.list


def test_a_thread_of_a_picture_is_refused_before_it_is_stretched():
    with pytest.raises(InputError, match="so narrow"):
        pixels(np.zeros((1, 30_000, 3), np.uint8))


def test_broken_files_are_told(tmp_path):
    path = tmp_path / "a.png"
    noise(300, 200).save(path)
    whole = path.read_bytes()
    cases = {
        "cut.png": (whole[: len(whole) // 2], "broken"),
        "text.png": (b"no picture at all", "no picture that can be read"),
        "empty.png": (b"", "it is empty"),
        "bomb.png": (bomb(50, 50), "broken"),
        "scribbled.png": (whole[:60] + bytes(200) + whole[260:], "broken"),
    }
    for name, (data, match) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=match) as told:
            read_picture(tmp_path / name)
        assert name in str(told.value)
    with pytest.raises(InputError, match="There is no picture"):
        read_picture(tmp_path / "absent.png")
    with pytest.raises(InputError, match="is a folder"):
        read_picture(tmp_path)
    with pytest.raises(InputError):
        read_picture("a\0b.png")


def test_mutated_files_never_escape(tmp_path):
    rng = np.random.default_rng(0)
    for suffix in ("png", "jpg", "gif", "webp", "tiff", "bmp"):
        path = tmp_path / f"a.{suffix}"
        noise(40, 30).save(path)
        whole = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(40):
            changed = whole.copy()
            changed[rng.integers(0, len(whole), 12)] = rng.integers(0, 256, 12)
            with suppress(InputError):
                read_picture(changed[: rng.integers(1, len(whole) + 1)].tobytes())


def test_what_is_no_picture():
    for raw, match in (
        (3, "not int"),
        ({"a": 1}, "not dict"),
        (np.zeros((2, 3, 5), np.uint8), r"\(2, 3, 5\)"),
        (np.zeros(4), r"\(4,\)"),
        (np.full((2, 2, 3), 300), "300"),
        (np.full((2, 2, 3), np.nan), "nan"),
        (np.full((2, 2, 3), -0.5), "-0.5"),
        (np.zeros((0, 4, 3), np.uint8), "nothing on it"),
    ):
        with pytest.raises(InputError, match=match):
            read_picture(raw)


def test_a_folder_of_pictures(tmp_path):
    (tmp_path / "inside").mkdir()
    for name in ("b.PNG", "a.jpg", "notes.txt", "inside/c.webp", ".hidden.png"):
        (tmp_path / name).write_bytes(b"x")
    assert [path.name for path in pictures_in(tmp_path)] == ["a.jpg", "b.PNG", "c.webp"]
    assert is_picture("photo.JPG") and is_picture(tmp_path) and is_picture(np.zeros((2, 2)))
    assert not is_picture("a photo of a cat") and not is_picture("two\nlines.png")


def test_without_pillow_it_is_said():
    code = (
        "import sys\nsys.modules['PIL'] = None\nimport clearhead.image as image\n"
        "assert 'torch' not in sys.modules\n"
        "try: image.read_picture('pyproject.toml')\nexcept ValueError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'clearhead[images]'" in done.stdout, done.stderr
