"""clearhead generate: continue a text, streaming; or go on writing together, line by line."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.speed import options_of, seconds, tokens_per_second
from clearhead.cli.speed import speed as speed_of
from clearhead.cli.style import DEFAULT, MODEL_HELP, note, open_model, out, print_json, waiting
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.pipeline.writing import Writing, Written

SAMPLING = "Sampling: draw the next token at random (any of these turns it on)"
SEARCH = "Search: look further than the next token"
RULES = "Rules: change the scores before a token is chosen"
FORM = "Form of the answer: only texts that fit can be written"
SPEED = "Speed: the same answer sooner, or nearly the same in less memory"
OUTPUT = "Output"


def _option(panel: str, help: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar)


def command(
    prompt: Annotated[
        str | None,
        typer.Argument(help="The text to continue; '-' reads it from standard input. Without one: from nothing."),
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = DEFAULT,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Write together: you a line, the model its continuation.")
    ] = False,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", "-n", help="Write at most this many tokens; default: 50.")
    ] = None,
    min_new_tokens: Annotated[int | None, typer.Option(help="Do not end before this many.")] = None,
    src_lang: Annotated[str | None, typer.Option(help="Translators: the language of the text.")] = None,
    tgt_lang: Annotated[str | None, typer.Option(help="Translators: the language to write.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    temperature: Annotated[
        float | None, _option(SAMPLING, "Divides the scores. Above 1: bolder; below 1: safer.")
    ] = None,
    top_k: Annotated[int | None, _option(SAMPLING, "Only the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, _option(SAMPLING, "Only the likeliest that together reach this share.")] = None,
    min_p: Annotated[float | None, _option(SAMPLING, "Only tokens at least this share as likely as the best.")] = None,
    typical_p: Annotated[
        float | None, _option(SAMPLING, "Only tokens about as surprising as expected, up to this share.")
    ] = None,
    seed: Annotated[int | None, _option(SAMPLING, "Draw the same way again.")] = None,
    num_beams: Annotated[int | None, _option(SEARCH, "Follow this many texts side by side; show the best.")] = None,
    num_return_sequences: Annotated[int | None, _option(SEARCH, "How many answers to give.")] = None,
    length_penalty: Annotated[float | None, _option(SEARCH, "Beams: above 1 favours longer answers.")] = None,
    num_beam_groups: Annotated[int | None, _option(SEARCH, "Beams: in so many groups that avoid each other.")] = None,
    diversity_penalty: Annotated[float | None, _option(SEARCH, "Beams: how much groups avoid each other.")] = None,
    penalty_alpha: Annotated[
        float | None, _option(SEARCH, "Contrastive search, with --top-k: the weight against saying the same again.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, _option(RULES, "Above 1: tokens that are there already count less.")
    ] = None,
    presence_penalty: Annotated[
        float | None, _option(RULES, "Taken from the score of a token that was written.")
    ] = None,
    frequency_penalty: Annotated[float | None, _option(RULES, "The same, for each time it was written.")] = None,
    no_repeat_ngram_size: Annotated[int | None, _option(RULES, "No run of so many tokens twice.")] = None,
    stop: Annotated[
        list[str] | None, _option(FORM, "End after this text. May be given several times.", metavar="TEXT")
    ] = None,
    choice: Annotated[
        list[str] | None, _option(FORM, "Answer with one of these. Give each one.", metavar="TEXT")
    ] = None,
    regex: Annotated[str | None, _option(FORM, "Answer with a match, such as '[0-9]{4}'.", metavar="PATTERN")] = None,
    json_schema: Annotated[
        str | None, _option(FORM, "Answer with JSON that is valid for this schema.", metavar="FILE|JSON")
    ] = None,
    assistant: Annotated[
        str | None, _option(SPEED, "A smaller model guesses ahead; MODEL checks. Same text.", metavar="MODEL")
    ] = None,
    prompt_lookup: Annotated[
        int | None, _option(SPEED, "Guess by copying N tokens that followed the same words. Same text.", metavar="N")
    ] = None,
    quantize: Annotated[
        str | None, _option(SPEED, "Round the weights: int8, int4; auto measures.", metavar="int8|int4|auto")
    ] = None,
    dtype: Annotated[str | None, _option(SPEED, "float32, bfloat16 or float16; default: as stored.")] = None,
    device: Annotated[str | None, _option(SPEED, "cpu, cuda, …")] = None,
    speed: Annotated[bool, _option(OUTPUT, "Say how many tokens a second, and what ran.", "--speed")] = False,
    as_json: Annotated[
        bool, _option(OUTPUT, "Print one JSON object: answers, tokens, log-probabilities, options, speed.", "--json")
    ] = False,
) -> None:
    """Continue a text with a language model, or answer it with an encoder–decoder.

    By default the likeliest token every time (greedy). The options below draw
    at random, search, forbid, or give the answer a form. Ctrl-C stops; what was
    written stands.

    Examples:

      clearhead generate "Once upon a time" -m ./my-gpt2 --top-k 40 --seed 1

      clearhead generate "Once upon a time" -m openai-community/gpt2 --num-beams 4

      clearhead generate "Is a whale a fish? Answer:" --choice yes --choice no

      clearhead generate --interactive --temperature 0.8
    """
    with waiting("Getting ready …"):
        from clearhead.generate import Options

    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "min_new_tokens": min_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "typical_p": typical_p,
        "seed": seed,
        "num_beams": num_beams,
        "num_return_sequences": num_return_sequences,
        "length_penalty": length_penalty,
        "num_beam_groups": num_beam_groups,
        "diversity_penalty": diversity_penalty,
        "penalty_alpha": penalty_alpha,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "no_repeat_ngram_size": no_repeat_ngram_size,
        "stop_strings": stop or None,
        "grammar": _form(choice, regex, json_schema),
        "assistant_model": assistant,
        "prompt_lookup_num_tokens": prompt_lookup,
    }
    # complain before anything is loaded
    Options.from_keywords(options)
    if interactive and (as_json or prompt == "-" or (num_return_sequences or 1) > 1):
        raise InputError("--interactive is one text that grows: it goes without --json, '-' and several answers.")
    if prompt == "-":
        prompt = sys.stdin.read()
        prompt = prompt[: -1 if prompt.endswith("\n") else None]  # what closes the last line is no part of the text
    if prompt is not None and not prompt.strip():
        raise InputError("The prompt is empty. Give at least one word, or leave it out to write from nothing.")

    where = {"dtype": dtype, "device": device}
    pipe = open_model(model, revision=revision, quantize=quantize, **where)
    if assistant is not None:
        options["assistant_model"] = open_model(assistant, **where)
    options |= {"src_lang": src_lang, "tgt_lang": tgt_lang}

    if interactive:
        from clearhead.cli.interactive import Desk

        Desk(pipe, options, speed=speed).sit_down(prompt)
        return

    writing = pipe.watch(prompt, log_probs=as_json, **options)
    stopped = False
    try:
        if writing.streams and not as_json:
            _stream(writing, "" if hasattr(pipe.model, "encoder") else prompt or "")
        else:  # token by token, so that an interrupt leaves what was written
            with nullcontext() if as_json else waiting("Writing …"):
                for _ in writing.pieces():
                    pass
    except KeyboardInterrupt:
        stopped = True
    if as_json:
        forms = {"choices": choice, "regex": regex, "json_schema": json_schema, "assistant_model": assistant}
        given = {name: value for name, value in forms.items() if value}
        print_json(_as_dict(model, prompt, writing) | {"options": options_of(writing) | given})
    elif not writing.streams:
        _print_answers(writing.answers)
    elif not stopped and not writing.answers[0].new_text:
        note("The model ended the text at once.")
    if stopped:
        if not as_json:
            note(
                "Stopped; what was written stands above." if writing.answers else "Stopped before the search had ended."
            )
        raise typer.Exit(130)
    if speed:
        note(speed_of(writing))


def _stream(writing: Writing, before: str) -> None:
    """Show the text as it comes; on a terminal the prompt is paler than what the model adds."""
    if before:
        pale = out().is_terminal and not out().legacy_windows
        sys.stdout.write(f"\x1b[2m{before}\x1b[0m" if pale else before)
    try:
        for piece in writing.pieces():
            sys.stdout.write(piece)
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")
        sys.stdout.flush()


def _print_answers(answers: list[Written]) -> None:
    """Several answers: numbered, and on a terminal set beside their numbers and scores."""
    console = out()
    if len(answers) == 1:
        print(answers[0].text)
        return
    if not console.is_terminal:
        for n, answer in enumerate(answers, start=1):
            print(f"[{n}] {answer.text}")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 1, 0))
    for n, answer in enumerate(answers, start=1):
        before = answer.text[: len(answer.text) - len(answer.new_text)]
        score = "" if answer.score is None else f"\n{answer.score:.2f}"
        table.add_row(Text(f"{n}{score}", style="dim"), Text.assemble((before, "dim"), answer.new_text))
    console.print(table)
    if answers[0].score is not None:
        note("The number under each is its score: log-probability for its length; nearer to 0 is likelier.")


def _form(choice: list[str] | None, regex: str | None, json_schema: str | None) -> Any:
    """The grammar that the answer must fit; None without one."""
    given = [
        name
        for name, value in (("--choice", choice), ("--regex", regex), ("--json-schema", json_schema))
        if value is not None and value != []
    ]
    if not given:
        return None
    if len(given) > 1:
        raise InputError(f"Give one form for the answer: {given[0]} or {given[1]}, not both.")
    from clearhead.generate import Grammar

    if choice:
        return Grammar.choices(choice)
    if regex is not None:
        return Grammar.regex(regex)
    assert json_schema is not None
    return Grammar.json(_schema(json_schema))


def _schema(given: str) -> Any:
    """A schema from the words themselves, or from the file they name."""
    inline = given.lstrip()[:1] in ("{", "[", '"') or given.strip() in ("true", "false")
    text, called = given, "The schema"
    if not inline:
        called = given
        try:
            text = Path(given).expanduser().read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(
                f'There is no file {given}. Give a path, or the schema itself: \'{{"type": "object"}}\'.'
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{given} cannot be read: {error}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{called} is not valid JSON: {error}.") from None


def _as_dict(model: str, prompt: str | None, writing: Writing) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": prompt,
        "answers": [asdict(answer) for answer in writing.answers],
        "new_tokens": writing.new_tokens,
        "seconds": round(seconds(writing), 4),
        "tokens_per_second": round(tokens_per_second(writing), 2),
    }
