"""clearhead generate: continue a text, streaming; or go on writing together, line by line."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli import writing
from clearhead.cli.answer_form import FORM_NAMES, grammar_of
from clearhead.cli.batch_job import BatchJob
from clearhead.cli.options import SourceLanguage, TargetLanguage, with_fields, with_group
from clearhead.cli.predictions import check_out
from clearhead.cli.speed import options_of, seconds, tokens_per_second
from clearhead.cli.speed import speed as speed_of
from clearhead.cli.style import DEFAULT, MODEL_HELP, note, open_model, out, print_json, waiting
from clearhead.cli.texts import STANDARD_INPUT, FileArguments, TextRows, check_files, read_texts, standard_input
from clearhead.errors import InputError
from clearhead.generation_options import COMMAND_LINE, FIELDS, GROUPS

if TYPE_CHECKING:
    from clearhead.pipeline.generation import GeneratedText, TextGeneration


def _option(group: str, help: str, *flags: str, metavar: str | None = None) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel=GROUPS[group], metavar=metavar)


StoreFolder = Annotated[
    str | None,
    typer.Option(
        help="Of a RETRO: look passages up in this store, a folder of clearhead index build.", metavar="FOLDER"
    ),
]
NeighborCount = Annotated[
    int | None, typer.Option(help="How many passages to look up for every chunk (2).", metavar="N")
]


@with_group("files")
@with_fields(COMMAND_LINE, GROUPS)
def command(
    *,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROMPT] …", help="The text to continue; '-' reads it from standard input (with --out "
                       "a text a line). Without one: from nothing."),
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = DEFAULT,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Write together: you a line, the model its continuation.")
    ] = False,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    store: StoreFolder = None,
    neighbors: NeighborCount = None,
    files: FileArguments,
    options: dict[str, Any],
    choice: Annotated[
        list[str] | None, _option("form", "Answer with one of these. Give each one.", metavar="TEXT")
    ] = None,
    regex: Annotated[str | None, _option("form", "Answer with a match, such as '[0-9]{4}'.", metavar="PATTERN")] = None,
    json_schema: Annotated[
        str | None, _option("form", "Answer with JSON that is valid for this schema.", metavar="FILE|JSON")
    ] = None,
    assistant: Annotated[str | None, _option("speed", FIELDS["assistant_model"].help, metavar="MODEL")] = None,
    quantize: Annotated[
        str | None, _option("speed", "Round the weights: int8, int4; auto measures.", metavar="int8|int4|auto")
    ] = None,
    dtype: Annotated[str | None, _option("speed", "float32, bfloat16 or float16; default: as stored.")] = None,
    device: Annotated[str | None, _option("speed", "cpu, cuda, …")] = None,
    speed: Annotated[bool, _option("output", "Say how many tokens a second, and what ran.", "--speed")] = False,
    as_json: Annotated[
        bool, _option("output", "Print one JSON object: answers, tokens, log-probabilities, options, speed.", "--json")
    ] = False,
) -> None:  # fmt: skip
    """Continue a text with a language model, or answer it with an encoder–decoder.

    By default the likeliest token every time (greedy). The options below draw
    at random, search, forbid, or give the answer a form. Ctrl-C stops; what was
    written stands.

    Examples:

      clearhead generate "Once upon a time" -m ./my-gpt2 --top-k 40 --seed 1

      clearhead generate "Once upon a time" -m openai-community/gpt2 --num-beams 4

      clearhead generate "Is a whale a fish? Answer:" --choice yes --choice no

      clearhead generate --file prompts.csv --column text --out written.csv

      clearhead generate --interactive --temperature 0.8
    """
    form = dict(zip(FORM_NAMES, (choice, regex, json_schema), strict=True))
    options |= {"grammar": grammar_of(form), "assistant_model": assistant}
    writing.check_options(options)  # before anything is loaded
    several = len(prompts or ()) > 1 or files.file is not None or files.out is not None
    if interactive and (as_json or several or prompts == ["-"] or (options["num_return_sequences"] or 1) > 1):
        raise InputError("--interactive is one text that grows: it goes without --json, '-', files and several texts.")
    if several and speed:
        raise InputError("--speed is said of one text: it goes without --file, --out and several texts.")
    rows = _read_prompts(prompts, files, several)
    prompt = _read_prompt(prompts, files) if rows is None else None
    pipe = open_model(model, revision=revision, quantize=quantize, dtype=dtype, device=device)
    if assistant is not None:
        options["assistant_model"] = open_model(assistant, dtype=dtype, device=device)
    writing.check_options(options, pipe.model.generation)
    options |= {"src_lang": src_lang, "tgt_lang": tgt_lang}
    retrieval = _retrieval(store, neighbors)
    if interactive:
        from clearhead.cli.interactive import InteractiveWriter

        InteractiveWriter(pipe, options | retrieval, speed=speed).run(prompt)
        return

    form_given = {name: value for name, value in (form | {"assistant_model": assistant}).items() if value}
    if rows is not None:
        predict, kept = (
            writing.writer(pipe.generate, _without_none(options) | retrieval),
            _without_none(options | {"grammar": None, "store": store, "neighbors": neighbors} | form_given),
        )
        job = BatchJob("generate", "Writing", model, pipe, rows, predict, list, kept, writing.FIRST_CHUNK)
        writing.run(job, files, as_json, "generated", "answers")
        return
    generation = pipe.start_generation(prompt, log_probs=as_json, **options, **retrieval)
    interrupted = _write(generation, None if as_json else "" if pipe.model.is_encoder_decoder else prompt or "")
    if as_json:
        print_json(_as_dict(model, prompt, generation) | {"options": options_of(generation) | form_given})
    else:
        _show(generation, interrupted)
    if interrupted:
        raise typer.Exit(130)
    if speed:
        note(speed_of(generation))


def _retrieval(store: str | None, neighbors: int | None) -> dict[str, Any]:
    """Where to look passages up and how many; the store is opened once."""
    if store is None:
        return {} if neighbors is None else {"neighbors": neighbors}
    from clearhead.pipeline.retrieval import open_store

    return {"store": open_store(store), "neighbors": neighbors}


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _read_prompts(prompts: list[str] | None, files: FileArguments, several: bool) -> TextRows | None:
    """The rows to write for; None for a single text, which is written as it comes."""
    check_files(prompts, files)
    if not several:
        return None
    rows = read_texts(prompts, files, "generate", example='"Once upon a time"')
    check_out(files, rows)
    return rows


def _read_prompt(prompts: list[str] | None, files: FileArguments) -> str | None:
    prompt = prompts[0] if prompts else None
    if prompt == STANDARD_INPUT:
        prompt = standard_input(files.encoding)
        prompt = prompt[: -1 if prompt.endswith("\n") else None]  # what closes the last line is no part of the text
    if prompt is not None and not prompt.strip():
        raise InputError("The prompt is empty. Give at least one word, or leave it out to write from nothing.")
    return prompt


def _write(generation: TextGeneration, prefix: str | None) -> bool:
    """Write to the end, or until it is interrupted: then True. prefix: what is shown in front; None: show nothing."""
    try:
        if generation.streams and prefix is not None:
            _stream(generation, prefix)
        else:  # token by token, so that an interrupt leaves what was written
            with nullcontext() if prefix is None else waiting("Writing …"):
                for _ in generation.pieces():
                    pass
    except KeyboardInterrupt:
        return True
    return False


def _show(generation: TextGeneration, interrupted: bool) -> None:
    """What a stream has not shown, and what there is to say of it."""
    if not generation.streams:
        _print_answers(generation.answers)
    elif not interrupted and not generation.answers[0].new_text:
        note("The model ended the text at once.")
    if interrupted:
        note(
            "Stopped; what was written stands above." if generation.answers else "Stopped before the search had ended."
        )


def _stream(generation: TextGeneration, prefix: str) -> None:
    """Show the text as it comes; on a terminal the prompt is paler than what the model adds."""
    if prefix:
        pale = out().is_terminal and not out().legacy_windows
        sys.stdout.write(f"\x1b[2m{prefix}\x1b[0m" if pale else prefix)
    try:
        for piece in generation.pieces():
            sys.stdout.write(piece)
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")
        sys.stdout.flush()


def _print_answers(answers: list[GeneratedText]) -> None:
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


def _as_dict(model: str, prompt: str | None, generation: TextGeneration) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": prompt,
        "answers": [asdict(answer) for answer in generation.answers],
        "new_tokens": generation.new_tokens,
        "seconds": round(seconds(generation), 4),
        "tokens_per_second": round(tokens_per_second(generation), 2),
    }
