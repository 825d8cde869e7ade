"""clearhead draw: a picture of a text, from noise, from a sketch, or into the hole of another picture."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.loading import LoadOptions
from clearhead.cli.options import with_group
from clearhead.cli.style import MODEL_HELP, err, note, open_pipeline
from clearhead.errors import InputError
from clearhead.files import atomic_write

if TYPE_CHECKING:
    from PIL.Image import Image

    from clearhead.generate.diffusion import DrawingStep
    from clearhead.pipeline.diffusion import DiffusionPipeline

SHIPPED = "draw"  # the model that is taken where none is named, once one ships
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
PREVIEWS = 6  # how often the picture is shown while it is drawn
PREVIEW_COLUMNS = 40


@with_group("loading")
def command(
    *,
    prompt: Annotated[str, typer.Argument(metavar="TEXT", help="What to draw.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to: .png, .jpg or .webp. Several get a number each.")
    ] = Path("drawing.png"),
    model: Annotated[
        str | None, typer.Option("--model", "-m", help=f"{MODEL_HELP} Stable Diffusion 1.x or 2.x.")
    ] = None,
    steps: Annotated[int, typer.Option(help="How many steps from noise to picture.")] = 30,
    guidance: Annotated[float, typer.Option(help="How much the text is exaggerated; 1: not at all.")] = 7.5,
    seed: Annotated[int | None, typer.Option(help="The same seed draws the same picture.")] = None,
    negative: Annotated[str | None, typer.Option(help="What it should not be.")] = None,
    image: Annotated[Path | None, typer.Option(help="A picture to begin from.")] = None,
    strength: Annotated[
        float | None, typer.Option(help="How much of it is drawn anew: above 0, up to 1 (0.8; with --mask 1).")
    ] = None,
    mask: Annotated[Path | None, typer.Option(help="Draw anew only what is white in this picture.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="How many pictures.")] = 1,
    width: Annotated[int | None, typer.Option(help="In pixels; by default what the model was trained with.")] = None,
    height: Annotated[int | None, typer.Option(help="In pixels.")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="ddim, plms, euler, euler-ancestral, dpm++, dpm++-karras …; by default the model's own."),
    ] = None,
    gallery: Annotated[
        Path | None, typer.Option(help="Also write the picture that was expected at every step, side by side.")
    ] = None,
    vocab: Annotated[
        Path | None, typer.Option(help="Of a single file: the folder of its tokenizer.", metavar="FOLDER")
    ] = None,
    preview: Annotated[bool, typer.Option(help="Show the picture in the terminal while it is drawn.")] = True,
    loading: LoadOptions,
) -> None:
    """Draw what a text says.

    What is shown and kept on the way is the picture that the model expects at the
    end, not the noise it still has to take away.

    Examples:

      clearhead draw "a red apple" -o apple.png -m ./stable-diffusion --steps 30 --seed 1

      clearhead draw "an oil painting" --image sketch.png --strength 0.6 -m ./stable-diffusion

      clearhead draw "a cat" --image room.png --mask sofa.png --gallery steps.png -m ./stable-diffusion
    """
    for path in (out, gallery):
        if path is not None:
            _check_target(path)
    pipe = _open(model, loading, vocab)
    options: dict[str, Any] = {
        "num_inference_steps": steps,
        "guidance_scale": guidance,
        "seed": seed,
        "negative_prompt": negative,
        "image": image,
        "mask_image": mask,
        "strength": strength,
        "num_images_per_prompt": count,
        "width": width,
        "height": height,
        "scheduler": scheduler,
    }
    expected: list[Image] = []
    with _Watcher(pipe, expected if gallery is not None else None, preview) as on_step:
        drawn = pipe.draw([prompt], on_step=on_step, **{k: v for k, v in options.items() if v is not None})
    _write_all(drawn, out)
    if gallery is not None:
        from clearhead.pipeline.picture_tensors import contact_sheet

        _write(contact_sheet([*expected, drawn[0]]), gallery)
    if preview and err().is_terminal:
        from clearhead.views.terminal.picture import half_blocks

        err().print(half_blocks(drawn[0], PREVIEW_COLUMNS))


def _check_target(path: Path) -> None:
    """Before anything is drawn."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path} does not say which kind of picture to write: end it in {', '.join(FORMATS)}.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.absolute().parent} is no folder; make it first, or write elsewhere.")


def _open(model: str | None, loading: LoadOptions, vocab: Path | None) -> DiffusionPipeline:
    from clearhead import zoo

    if model is None and SHIPPED not in zoo.cards():
        raise InputError(
            "No model that draws ships with Clearhead yet. Name one with -m: a folder as diffusers writes it, one "
            ".safetensors file, or a hub id such as stable-diffusion-v1-5/stable-diffusion-v1-5."
        )
    name = model or SHIPPED
    pipe: Any
    if vocab is not None:
        from clearhead.cli.style import show_warnings
        from clearhead.pipeline import load

        show_warnings()
        pipe = load(name, dtype=loading.dtype, device=loading.device, vocab=vocab)
    else:
        pipe = open_pipeline(name, dtype=loading.dtype, device=loading.device, revision=loading.revision, fallback="")
    from clearhead.pipeline.diffusion import DiffusionPipeline

    if not isinstance(pipe, DiffusionPipeline):
        title = pipe.model.family.title
        raise InputError(f"{name} does not draw: it is {title}. Name a Stable Diffusion model with -m.")
    return pipe


class _Watcher:
    """Shows how far a drawing is, and keeps the expected pictures of its steps."""

    def __init__(self, pipe: DiffusionPipeline, expected: list[Image] | None, preview: bool) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = err()
        self.pipe, self.expected = pipe, expected
        self.preview = preview and console.is_terminal
        columns = (TextColumn("Drawing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bars = Progress(*columns, console=console)
        self.bar = self.bars.add_task("", total=None)
        shown = console.is_terminal
        live = Live(self.bars, console=console, transient=True)
        self.live: AbstractContextManager[Any] = live if shown else nullcontext()

    def __enter__(self) -> Callable[[DrawingStep], None]:
        self.shown = self.live.__enter__()
        return self.see

    def __exit__(self, *exc: Any) -> None:
        self.live.__exit__(*exc)

    def see(self, step: DrawingStep) -> None:
        self.bars.update(self.bar, completed=step.index + 1, total=step.count)
        shows = self.preview and step.index % max(1, step.count // PREVIEWS) == 0
        if self.expected is None and not shows:
            return
        from clearhead.pipeline.picture_tensors import to_pictures

        picture = to_pictures(self.pipe.decode(step.predicted[:1]))[0]
        if self.expected is not None:
            self.expected.append(picture)
        if shows:
            from rich.console import Group

            from clearhead.views.terminal.picture import half_blocks

            self.shown.update(Group(half_blocks(picture, PREVIEW_COLUMNS), self.bars))


def _write_all(pictures: list[Image], out: Path) -> None:
    for n, picture in enumerate(pictures, start=1):
        path = out if len(pictures) == 1 else out.with_name(f"{out.stem}-{n}{out.suffix}")
        _write(picture, path)


def _write(picture: Image, path: Path) -> None:
    """Whole, or not at all."""
    data = io.BytesIO()
    picture.save(data, format=FORMATS[path.suffix.lower()])
    atomic_write(path, data.getvalue(), InputError)
    note(f"{path}  {picture.width} × {picture.height}")
