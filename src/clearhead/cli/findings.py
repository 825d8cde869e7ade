"""What becomes of a finding, for every verb that has one: drawn in the terminal, printed, saved, opened."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.style import note, out, print_json
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.explain import Finding

# The options of such a verb.
AsJson = Annotated[bool, typer.Option("--json", help="Print the finding as JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print its rows as CSV.")]
Save = Annotated[
    Path | None, typer.Option(help="Save the finding: .html (a live picture), .json or .csv.", metavar="FILE")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if there is one.")]
Browse = Annotated[bool, typer.Option("--open", help="Open the picture in the browser.")]


def check_target(
    save: Path | None, overwrite: bool = False, browse: bool = False, as_json: bool = False, as_csv: bool = False
) -> None:
    """Whether the finding can be shown and saved as it is asked for, before anything is computed."""
    if as_json and as_csv:
        raise InputError("--json and --csv both print the finding: give one of them, and --save FILE for the other.")
    if save is None and overwrite:
        raise InputError("--overwrite replaces the file that --save names: it goes with --save.")
    if save is None:
        return
    if save.suffix.lower() not in (".html", ".json", ".csv"):
        raise InputError(f"A finding is saved as .html, .json or .csv, not as {save.name!r}.")
    if browse and save.suffix.lower() != ".html":
        raise InputError(f"--open shows a page: save as .html, not as {save.name!r}.")
    target = save.expanduser()
    if target.exists() and not overwrite:
        raise InputError(f"{save} is there already. Choose another name, or add --overwrite to replace it.")
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {target.parent}. Make it first, or save elsewhere.")


def show_finding(
    finding: Finding, as_json: bool = False, as_csv: bool = False, save: Path | None = None, browse: bool = False
) -> None:
    """Its picture on standard output, or everything as JSON, or its rows as CSV; and a file, where one is asked for."""
    if browse and save is None:
        save = Path(tempfile.mkdtemp(prefix="clearhead-")) / f"{finding.kind}.html"
    saved = None if save is None else finding.save(save, overwrite=True)  # check_target has looked
    if as_json:
        print_json(finding.to_dict())
    elif as_csv:
        print(finding.to_csv(), end="")
    else:
        out().print(finding)
    if saved is not None:
        note(f"Saved to {saved}")
    if saved is not None and browse and not webbrowser.open(saved.resolve().as_uri()):
        note("No browser could be opened; open the file yourself.")
