"""clearhead generate --interactive: one text that grows, a line of yours and a continuation of the model's in turn."""

from __future__ import annotations

import contextlib
import sys
import unicodedata
from typing import Any

from clearhead.cli.speed import speed as speed_of
from clearhead.cli.style import err, note, out, table_of
from clearhead.errors import ClearheadError, InputError, PromptTooLong, did_you_mean
from clearhead.generate import Options, PromptCache
from clearhead.generation_options import COMMAND_LINE
from clearhead.pipeline import TextPipeline
from clearhead.schema import Field

COMMANDS = {
    "/undo": "take back the last line and its answer",
    "/reset": "begin a new text",
    "/text": "show the whole text so far",
    "/set": "show the options; /set temperature 0.8 changes one, /set temperature off drops it",
    "/help": "show this",
    "/quit": "leave (as Ctrl-D does)",
}
# One text that grows has one answer.
SETTABLE = {name: field for name, field in COMMAND_LINE.items() if name != "num_return_sequences"}


class InteractiveWriter:
    """
    text       all that stands so far, yours and the model's
    options    what every turn is asked for; /set changes them
    """

    def __init__(self, pipe: TextPipeline, options: dict[str, Any], speed: bool = False) -> None:
        self.pipe, self.options, self.speed = pipe, options, speed
        self.text = ""
        self._earlier: list[str] = []  # the text before each turn
        self._past = PromptCache()  # so that only what is new is read
        self._answers = pipe.model.is_encoder_decoder  # each line on its own: there is nothing to grow
        self._terminal = sys.stdin.isatty() and out().is_terminal

    def run(self, first: str | None = None) -> None:
        """Until Ctrl-D or /quit."""
        if self._terminal:
            with contextlib.suppress(ImportError):  # arrow keys and earlier lines, where the system has them
                import readline  # noqa: F401
            does = "answers each line" if self._answers else "goes on from your line"
            note(
                f"{self.pipe.name} {does}; Enter alone lets it go on. Ctrl-C stops it, Ctrl-D leaves, /help tells more."
            )
        if first is not None:
            self.handle(first)
        while (line := self._read()) is not None:
            if line.strip() in ("/quit", "/exit", "/q"):
                return
            self.handle(line)

    def handle(self, line: str) -> None:
        """A command, or the next part of the text. A mistake is said, and changes nothing."""
        try:
            if line.startswith("/"):
                self._command(*line.split(maxsplit=2))
            else:
                self._turn(line)
        except ClearheadError as error:
            err().print(str(error), style="red", markup=False)

    def _read(self) -> str | None:
        """The next line; None at the end."""
        while True:
            try:
                if self._terminal:
                    return input("\x1b[1m›\x1b[0m " if "readline" not in sys.modules else "\1\x1b[1m\2›\1\x1b[0m\2 ")
                line = sys.stdin.readline()
                return line.rstrip("\r\n") if line else None
            except EOFError:
                print()
                return None
            except KeyboardInterrupt:
                print()
                note("Nothing is being written. Ctrl-D or /quit leaves.")

    def _turn(self, line: str) -> None:
        if not line.strip() and (self._answers or not self.text.strip()):
            raise InputError("There is no text to go on from. Type a few words.")
        text = line if self._answers else joined(self.text, line)
        try:
            generation = self.pipe.start_generation(text, past=self._past, log_probs=False, **self.options)
        except PromptTooLong as error:
            raise InputError(f"{error} /undo takes back the last turn, /reset begins a new text.") from None
        answer = ""
        try:
            for piece in generation.pieces():
                shown = piece if answer else piece.removeprefix(" ")  # a space at the edge is not seen
                sys.stdout.write(shown)
                sys.stdout.flush()
                answer += piece
        except KeyboardInterrupt:
            print()
            note("Stopped; what was written stays.")
        else:
            print()
            if not answer:
                note("The model ended the text at once.")
            if self.speed:
                note(speed_of(generation))
        if self._answers:
            return
        self._earlier.append(self.text)
        self.text = text + answer
        if generation.full:
            note("The model's positions are full: nothing can follow. /undo takes this turn back, /reset begins anew.")

    def _command(self, command: str, *words: str) -> None:
        if command == "/help":
            out().print(table_of(COMMANDS))
            if not self._answers:
                note(
                    "A line follows the text with a space between; begin it with a space or a comma to add it as it is."
                )
        elif command == "/undo":
            if not self._earlier:
                raise InputError("There is nothing to take back.")
            self.text = self._earlier.pop()
            tail = f"…{self.text[-60:]}" if len(self.text) > 60 else self.text
            note(f"Back to: {tail}" if tail else "Back to the beginning.")
        elif command == "/reset":
            self.text, self._earlier, self._past = "", [], PromptCache()
            note("A new text.")
        elif command == "/text":
            print(self.text)
        elif command == "/set":
            self._set(*words)
        else:
            raise InputError(f"There is no command {command}.{did_you_mean(command, COMMANDS)} /help lists them.")

    def _set(self, name: str | None = None, value: str | None = None) -> None:
        if name is None:
            chosen = {n: v for n, v in self.options.items() if v is not None and n in SETTABLE}
            print("\n".join(f"{n} {v}" for n, v in chosen.items()) or "All options are at their defaults.")
            return
        name = name.removeprefix("--").replace("-", "_")
        if name not in SETTABLE:
            near = did_you_mean(name, SETTABLE)
            raise InputError(f"/set has no option {name!r}.{near or ' It knows ' + ', '.join(SETTABLE) + '.'}")
        if value is None:
            raise InputError(f"/set {name} needs a value, or off.")
        changed = self.options | {name: _value(SETTABLE[name], value)}
        languages = ("src_lang", "tgt_lang")  # not for the strategies to judge
        Options.from_keywords({n: v for n, v in changed.items() if n not in languages})
        self.options = changed
        note(f"{name} is {'off' if changed[name] is None else changed[name]}.")


def _value(field: Field, text: str) -> Any:
    if text.lower() in ("off", "none", "default"):
        return None
    return [text] if field.several and field.kind == "text" else field.parse(text)


def joined(text: str, line: str) -> str:
    """The line after the text: with a space between, unless one is there or the writing does without."""
    if not text or not line:
        return text + line
    edge = text[-1], line[0]
    glued = any(c.isspace() or unicodedata.east_asian_width(c) in "WF" for c in edge)
    return text + line if glued or unicodedata.category(line[0]).startswith("P") else f"{text} {line}"
