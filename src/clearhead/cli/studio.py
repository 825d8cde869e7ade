"""clearhead studio: the page in the browser, where models are asked and their insides are seen."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated

import typer

from clearhead.cli.style import note, out, waiting


def command(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Default: 8421, or the next that is free.", show_default=False)
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen. Beyond this machine (0.0.0.0), the page asks for a token.")
    ] = "127.0.0.1",
    model: Annotated[
        list[str] | None,
        typer.Option("--model", "-m", help="A folder or a hub id that the page may load, beside the shipped models."),
    ] = None,
    runs: Annotated[str | None, typer.Option(help="A folder with training runs, to be shown as they go.")] = None,
    allow_hub: Annotated[
        bool, typer.Option("--allow-hub", help="Let the page load any model from the Hugging Face hub.")
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Open the studio: chapters, the lab and training runs, in the browser.

    It listens on this machine alone and needs no network. Ctrl-C ends it.

    Examples:

      clearhead studio

      clearhead studio --model runs/mine/model --runs runs
    """
    from clearhead.errors import ClearheadError

    with waiting("Starting the studio …"):
        try:
            from clearhead.studio.serve import has_display, listen, serve, token_for
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in ("fastapi", "starlette", "uvicorn"):
                raise
            raise ClearheadError(
                f"The studio needs {error.name}, which is not installed: pip install 'clearhead[studio]'"
            ) from None
        from clearhead.server.guard import Place
        from clearhead.studio.app import Studio
        from clearhead.studio.runs import Runs

        listener = listen(host, port)
        place = Place(host, listener.getsockname()[1], token_for(host))
        try:
            studio = Studio(model or (), hub=allow_hub, runs=None if runs is None else Runs(runs), place=place)
        except BaseException:
            listener.close()
            raise

    def ready() -> None:
        out().print(f"The studio is open at {place.url}", markup=False, soft_wrap=True)
        note("Ctrl-C ends it.")

    serve(studio, listener, ready, browser=not no_browser and has_display())
    note("The studio is closed.")
    sys.stdout.flush()
    if threading.active_count() > 1:  # a model may be loading, in code that Python would tear down under its feet
        os._exit(0)
