"""clearhead studio: the page in the browser, where models are asked and their insides are seen."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
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
    store: Annotated[
        list[str] | None,
        typer.Option("--store", help="A folder of clearhead index build, in which the page may look passages up."),
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
            from clearhead.server.start import listen, serve, token_for
            from clearhead.studio.app import Studio
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn"):
                raise
            raise ClearheadError(
                f"The studio needs {error.name}, which is not installed: pip install 'clearhead[studio]'"
            ) from None
        from clearhead.server.guard import ServerAddress
        from clearhead.studio.runs import Runs

        listener = listen(host, port)
        address = ServerAddress(host, listener.getsockname()[1], token_for(host))
        try:
            folder = None if runs is None else Runs(runs)
            studio = Studio(model or (), allow_hub=allow_hub, stores=store or (), runs=folder, address=address)
        except BaseException:
            listener.close()
            raise

    def ready() -> None:
        out().print(f"The studio is open at {address.url}", markup=False, soft_wrap=True)
        note("Ctrl-C ends it.")
        threading.Thread(target=studio.warm_up, daemon=True).start()
        if not no_browser and has_display():
            threading.Thread(target=webbrowser.open, args=(address.url,), daemon=True).start()

    serve(studio.app, studio.jobs, listener, ready)
    note("The studio is closed.")
    sys.stdout.flush()
    if threading.active_count() > 1:  # a model may be loading, in code that Python would tear down under its feet
        os._exit(0)


def has_display() -> bool:
    """Whether a browser could be seen."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
