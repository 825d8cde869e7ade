"""clearhead generate: continue a text, streaming."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from clearhead.cli.style import MODEL_HELP, note, open_model, print_json, waiting


def command(
    prompt: Annotated[
        str | None,
        typer.Argument(help="The text to continue; '-' reads it from standard input. Without one: from nothing."),
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help=MODEL_HELP)] = "random-gpt2",
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", "-n", help="How many tokens to write; default: 50.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Above 1: bolder; below 1: safer.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens only.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest that reach this share.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1: repeat less.")] = None,
    num_beams: Annotated[
        int | None, typer.Option(help="Follow this many hypotheses side by side (beam search).")
    ] = None,
    num_return_sequences: Annotated[int | None, typer.Option(help="How many answers to give.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Beam search: above 1 favours longer answers.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draw the same way again.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; default: as stored.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, …")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Continue a text with a language model.

    Greedy by default (the likeliest token every time). Any of --temperature, --top-k, --top-p and --seed draws at
    random instead; --num-beams searches.

    Examples:

      clearhead generate "Once upon a time" --model openai-community/gpt2 --top-k 40 --seed 1

      clearhead generate "Once upon a time" -m ./my-gpt2 --num-beams 4 --num-return-sequences 2
    """
    if prompt == "-":
        prompt = sys.stdin.read()
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
        "num_beams": num_beams,
        "num_return_sequences": num_return_sequences,
        "length_penalty": length_penalty,
        "seed": seed,
    }
    with waiting("Getting ready …"):
        from clearhead.generate import Options

    options = {name: value for name, value in options.items() if value is not None}
    Options.from_keywords(options)  # complain before anything is loaded
    pipe = open_model(model, dtype=dtype, device=device, revision=revision)
    beams = options.get("num_beams", pipe.model.generation.get("num_beams") or 1)
    if as_json or beams > 1 or options.get("num_return_sequences", 1) > 1:
        answer = pipe.generate(prompt, **options)
        answers = answer if isinstance(answer, list) else [answer]
        if as_json:
            print_json({"model": model, "prompt": prompt, "texts": answers})
        else:
            for n, text in enumerate(answers):
                print(text if len(answers) == 1 else f"[{n + 1}] {text}")
        return
    answers_only = hasattr(pipe.model, "encoder")  # an encoder–decoder answers its text rather than continuing it
    written, wrote = "" if answers_only else prompt or "", False
    try:
        for piece in pipe.stream(prompt, **options):
            sys.stdout.write(written + piece)
            sys.stdout.flush()
            written, wrote = "", True
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        note("Stopped; what was written stands above.")
        raise typer.Exit(130) from None
    sys.stdout.write(f"{written}\n")
    if not wrote:
        note("The model ended the text at once.")
