"""clearhead next: the likeliest next tokens; pick one, and go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import SourceLanguage, TargetLanguage
from clearhead.cli.style import DEFAULT, MODEL_HELP, err, note, open_model, out, print_json, table_of
from clearhead.cli.texts import check_argument
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.explain import NextTokens
    from clearhead.pipeline import TextPipeline

KEYS = {
    "Enter": "take the likeliest",
    "1, 2, 3 …": "take that one",
    "any text": "add it as it stands; begin with a space for a new word",
    "=text": "the same, where the text is a number or a letter of this list",
    "u": "undo",
    "q": "quit",
}


def command(
    text: Annotated[str | None, typer.Argument(help="The text so far. Without one: how a text begins.")] = None,
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = DEFAULT,
    top_k: Annotated[int, typer.Option(min=1, help="How many tokens to show.")] = 10,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Do not ask: take the likeliest so many times, and show each choice.")
    ] = None,
    target: Annotated[str, typer.Option(help="Encoder–decoders read TEXT: what has been written so far.")] = "",
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; default: as stored.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the finding as JSON.")] = False,
) -> None:
    """Show the likeliest next tokens with their probabilities; pick one, and the model looks again.

    The probabilities are the model's own, before temperature or penalties. On a
    terminal it asks what to take: a number, any text, u to undo, q to quit.
    The same lines can come through a pipe.

    Examples:

      clearhead next "The capital of France is" -m openai-community/gpt2

      clearhead next "The robot" --steps 5 --top-k 3
    """
    if text is not None:
        check_argument(text)
    pipe = open_model(model, dtype=dtype, device=device, revision=revision)
    progress = TextInProgress(pipe, text, target, src_lang, tgt_lang)
    if steps is not None:
        steps_shown = list(_greedy(progress, top_k, steps))
        if as_json:
            print_json({"model": model, "text": progress.text, "steps": [finding.to_dict() for finding in steps_shown]})
            return
        for n, finding in enumerate(steps_shown):
            _show(finding, progress, numbered=False, first=n == 0)
        out().print(progress.text, markup=False, soft_wrap=True)
        return
    if as_json:
        print_json(progress.look(top_k).to_dict())
        return
    asks = sys.stdin.isatty() and out().is_terminal
    _show(progress.look(top_k), progress, numbered=asks or not sys.stdin.isatty())
    if sys.stdin.isatty() and not asks:  # the output goes elsewhere: nobody to ask
        return
    if asks:
        note("A number or Enter takes one, any other text is added as it stands; u undo, ? help, q quit.")
    while (line := _ask(asks)) is not None and line.strip() != "q":
        if line.strip() == "?":
            err().print(table_of(KEYS), style="dim")
            continue
        try:
            _answer(line, progress, top_k)
        except InputError as error:
            err().print(str(error), style="red", markup=False)
            continue
        _show(progress.look(top_k), progress, numbered=True, first=False)


class TextInProgress:
    """A text on its way, token by token; what the model has read stays read.

    prompt   what stood at the beginning        source   what an encoder has read; None without one
    chosen   the tokens taken since
    """

    def __init__(
        self,
        pipe: TextPipeline,
        text: str | None,
        target: str = "",
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> None:
        from clearhead.explain.next_token import begin

        self.pipe = pipe
        self._encoded, self._start = begin(pipe, text, target, src_lang, tgt_lang)
        self.prompt = (text or "") if self._encoded is None else target
        self.source = None if self._encoded is None else text
        self.chosen: list[int] = []
        self._turns: list[int] = []  # how many tokens each turn added
        self._read()

    def _read(self) -> None:
        """From the beginning: the prompt and what was chosen."""
        import torch

        from clearhead.generate.session import DecodingSession

        reads = self._encoded is not None
        start = int(self._start[0, 0]) if reads else None
        prompt_ids = self._encoded if self._encoded is not None else self._start
        self._session = DecodingSession(self.pipe.model, prompt_ids, None, 64, start)
        self._check_length(self._start.shape[1] + len(self.chosen))
        rest = [*(self._start[0, 1:].tolist() if reads else []), *self.chosen]
        with torch.no_grad():
            scores = self._session.prefill()[0]
            self._scores = [scores]  # after the prompt, and after each chosen token
            if rest:
                more = self._session.append(torch.tensor([rest], device=prompt_ids.device))[0]
                after = [*scores[None], *more]
                self._scores = after[len(rest) - len(self.chosen) :]

    def _check_length(self, tokens: int) -> None:
        limit = self._session.max_length
        if limit is not None and tokens > limit:
            raise InputError(
                f"The text would have {tokens} tokens, and the model has {limit} positions. Go back (u) or shorten it."
            )

    @property
    def text(self) -> str:
        """What stands so far; of an encoder–decoder, what is written."""
        tokenizer, before = self.pipe.tokenizer.target, self._start[0].tolist()
        old = tokenizer.decode(before, skip_special_tokens=True)
        whole = tokenizer.decode(before + self.chosen, skip_special_tokens=True)
        return self.prompt + whole[len(old) :] if whole.startswith(old) else whole

    def look(self, top_k: int) -> NextTokens:
        from clearhead.explain.next_token import likeliest

        return likeliest(self.pipe, self._scores[-1], self.text, top_k, self.source)

    def take(self, tokens: list[int]) -> None:
        import torch

        self._check_length(self._session.tokens.shape[1] + len(tokens))
        with torch.no_grad():
            scores = self._session.append(torch.tensor([tokens], device=self._start.device))[0]
        self._scores += list(scores)
        self.chosen += tokens
        self._turns.append(len(tokens))

    def undo(self) -> None:
        if not self._turns:
            raise InputError("There is nothing to take back.")
        count = self._turns.pop()
        del self.chosen[-count:], self._scores[-count:]
        try:
            self._session.rollback(count)
        except InputError:  # a window or a memory that has moved on
            self._read()


def _greedy(progress: TextInProgress, top_k: int, steps: int) -> Iterator[NextTokens]:
    """Look and take the likeliest, so many times or until the text ends."""
    ends = progress.pipe.model.config.eos_token_id
    for _ in range(steps):
        next_tokens = progress.look(top_k)
        yield next_tokens
        best = next_tokens.candidates[0].token_id
        if best in (ends if isinstance(ends, list) else [ends]):
            return
        try:
            progress.take([best])
        except InputError as error:  # no room for more: what was found stands
            note(str(error))
            return


def _answer(line: str, progress: TextInProgress, top_k: int) -> None:
    word = line.strip()
    if word == "u":
        progress.undo()
    elif word == "" or word.isdecimal():
        number = int(word or 1)
        next_tokens = progress.look(top_k)
        if not 1 <= number <= len(next_tokens.candidates):
            raise InputError(
                f"There are {len(next_tokens.candidates)} to choose from. To add the text {word}, type ={word}"
            )
        progress.take([next_tokens.candidates[number - 1].token_id])
    else:
        typed = line.removeprefix("=").replace("␣", " ").replace("⏎", "\n").replace("⇥", "\t")
        ids = progress.pipe.tokenizer.target.encode(typed, add_special_tokens=False)
        if not ids:
            raise InputError("That text has no tokens. Type a number, a text, u or q.")
        progress.take(ids)


def _ask(terminal: bool) -> str | None:
    """The next line; None at the end."""
    try:
        if terminal:
            return input("› ")
        line = sys.stdin.readline()
        return line.rstrip("\r\n") if line else None
    except (EOFError, KeyboardInterrupt):
        print()
        return None


def _show(next_tokens: NextTokens, progress: TextInProgress, numbered: bool, first: bool = True) -> None:
    from clearhead.views.terminal.generation import print_next_tokens

    added = next_tokens.text[len(progress.prompt) :] if next_tokens.text.startswith(progress.prompt) else ""
    print_next_tokens(next_tokens, out(), numbered=numbered, added=len(added), first=first)
