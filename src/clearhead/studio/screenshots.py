"""Pictures of every page of the studio, made by one command, to be looked at.

python -m clearhead.studio.screenshots OUT

Each page is taken at several widths, in both themes and both languages, once its figures stand. Needs playwright and
a Chromium; the studio it looks at is started here and ends with it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearhead.errors import ClearheadError, InputError

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS = (360, 768, 1280, 2560)
THEMES = ("light", "dark")
LANGUAGES = ("en", "zh")
HEIGHT = 900
TALL = 30_000  # every figure of a page is near a window so high, and asks at once
SECONDS = 180  # for all figures of a page

_STANDING = """() => !document.querySelector("[aria-busy], .st-thinking")
  && [...document.querySelectorAll(".st-live")].every((one) => one.querySelector("figcaption, .st-error"))"""
_CHAPTERS = """async () => {
  const { models } = await (await fetch("/api/state")).json();
  return (await (await import("/static/studio/chapter.js")).all(models)).map((one) => one.slug);
}"""
_LAB = """async () => {
  const { models, questions } = await (await fetch("/api/state")).json(), models_by_question = {};
  for (const model of models.sort((a, b) => b.trained - a.trained)) {
    const { questions: reasons } = await (await fetch(`/api/models/${encodeURIComponent(model.name)}`)).json();
    for (const { name } of questions) if (reasons[name] === null) models_by_question[name] ??= model.name;
  }
  return models_by_question;
}"""


def shoot(
    out: Path,
    address: str,
    only: str = "",
    widths: tuple[int, ...] = WIDTHS,
    themes: tuple[str, ...] = THEMES,
    languages: tuple[str, ...] = LANGUAGES,
) -> Iterator[Path]:
    """Takes the pictures of the studio at this address and gives their paths as they are made.

    only   a part of the names of the pages that are wanted: "lab", "lab-attention", "chapter"
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise InputError("Pictures need playwright: pip install playwright.") from None
    if CHROMIUM is None:
        raise InputError("Pictures need a Chromium, and none is installed here (Debian: apt install chromium).")
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for language in languages:
            context = browser.new_context(reduced_motion="reduce", locale="zh-CN" if language == "zh" else "en-GB")
            page = context.new_page()
            page.goto(address)
            for name, path in pages(page):
                if only not in name:
                    continue
                page.set_viewport_size({"width": widths[0], "height": TALL})
                page.goto(address + path)
                page.locator("main > *").first.wait_for()
                for width in widths:
                    page.set_viewport_size({"width": width, "height": TALL})
                    page.wait_for_function(_STANDING, timeout=SECONDS * 1000)
                    page.set_viewport_size({"width": width, "height": HEIGHT})
                    for theme in themes:
                        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
                        page.wait_for_timeout(120)  # a few frames, in which figures are drawn anew
                        target = out / f"{name}-{width}-{theme}-{language}.png"
                        page.screenshot(path=target, full_page=True, caret="initial")
                        yield target
            context.close()
        browser.close()


def pages(page: Any) -> list[tuple[str, str]]:
    """The name and the address of every page: the first, the chapters, the lab with each question, the runs."""
    chapters = [(f"chapter-{slug}", f"/chapters/{slug}") for slug in page.evaluate(_CHAPTERS)]
    lab = [(f"lab-{name}", f"/lab?model={model}&question={name}") for name, model in page.evaluate(_LAB).items()]
    return [("contents", "/"), *chapters, *lab, ("runs", "/runs")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m clearhead.studio.screenshots", description=__doc__)
    parser.add_argument("out", type=Path, help="the folder for the pictures")
    parser.add_argument("--only", default="", help='pages whose names hold this: "lab", "chapter-bert"')
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--themes", choices=THEMES, nargs="+", default=THEMES)
    parser.add_argument("--languages", choices=LANGUAGES, nargs="+", default=LANGUAGES)
    parser.add_argument("--model", action="append", default=[], help="a further model: a folder")
    parser.add_argument("--runs", help="a folder of training runs, for the page that shows them")
    args = parser.parse_args()
    try:
        for path in _pictures(args):
            print(path)
    except ClearheadError as error:
        sys.exit(str(error))


def _pictures(args: argparse.Namespace) -> Iterator[Path]:
    from clearhead.server.guard import ServerAddress
    from clearhead.server.start import listen, serve
    from clearhead.studio.app import Studio
    from clearhead.studio.runs import Runs

    listener = listen("127.0.0.1", 0)
    address = ServerAddress("127.0.0.1", listener.getsockname()[1])
    studio = Studio(args.model, runs=Runs(args.runs) if args.runs else None, address=address)
    ready = threading.Event()
    threading.Thread(target=serve, args=(studio.app, studio.jobs, listener, ready.set), daemon=True).start()
    ready.wait()
    views = tuple(args.widths), tuple(args.themes), tuple(args.languages)
    yield from shoot(args.out, f"http://127.0.0.1:{address.port}", args.only, *views)


if __name__ == "__main__":
    main()
