"""clearhead tokenize: see a text as the model sees it, or train a tokenizer of your own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.style import DEFAULT, note, out, print_json, waiting
from clearhead.cli.texts import check_argument

if TYPE_CHECKING:
    from clearhead.text import Tokenizer


def command(
    text: Annotated[str | None, typer.Argument(help="The text to cut into pieces.")] = None,
    pair: Annotated[str | None, typer.Argument(help="A second text, for models that read two.")] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="Whose tokenizer.")] = DEFAULT,
    special: Annotated[bool, typer.Option(help="Add the model's special tokens.")] = True,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of colours.")] = False,
    train: Annotated[
        list[Path] | None,
        typer.Option(help="Train a new tokenizer on this text file (may be given several times).", metavar="FILE"),
    ] = None,
    kind: Annotated[str | None, typer.Option(help="With --train: bpe, wordpiece or unigram; default: bpe.")] = None,
    vocab_size: Annotated[int | None, typer.Option(help="With --train: how many pieces; default: 8000.")] = None,
    save: Annotated[Path | None, typer.Option(help="With --train: the folder to write.", metavar="FOLDER")] = None,
) -> None:
    """Show how a text is cut into pieces, with their ids; or train a tokenizer.

    Examples:

      clearhead tokenize "Attention is all you need" -m openai-community/gpt2

      clearhead tokenize --train corpus.txt --kind bpe --vocab-size 8000 --save my-tokenizer
    """
    from clearhead.errors import InputError

    if train:
        if text is not None or as_json:
            raise InputError("--train makes a tokenizer of the files: it goes without a text and without --json.")
        if save is None:
            raise InputError("Say where to put the new tokenizer: --save FOLDER.")
        _train(train, kind or "bpe", vocab_size or 8000, save)
        return
    for option, value in (("--kind", kind), ("--vocab-size", vocab_size), ("--save", save)):
        if value is not None:
            raise InputError(f"{option} is about a tokenizer to be trained: it goes with --train FILE.")
    if text is None:
        raise InputError('Give a text to tokenize: clearhead tokenize "some words".')
    check_argument(text)
    if pair is not None:
        check_argument(pair, "second text")
    with waiting(f"Loading the tokenizer of {model} …"):
        tokenizer = _tokenizer_of(model, revision)
    encoding = tokenizer(text, pair, add_special_tokens=special, return_offsets_mapping=True)
    ids = encoding["input_ids"]
    tokens = tokenizer.readable(ids)
    if as_json:
        rows = zip(tokens, ids, encoding["offset_mapping"], strict=True)
        print_json([{"token": token, "id": id_, "start": start, "end": end} for token, id_, (start, end) in rows])
        return
    from rich.text import Text

    from clearhead.views.terminal.elements import TOKEN_COLOURS, chip, show_spaces

    line = Text()
    for n, (token, id_) in enumerate(zip(tokens, ids, strict=True)):
        line.append(chip(show_spaces(token)), style=f"white on {TOKEN_COLOURS[n % len(TOKEN_COLOURS)]}")
        line.append(f"\u00a0{id_} ", style="dim")
        line.append(" ")
    out().print(line)
    note(f"{len(ids)} tokens, {len(tokenizer):,} in the vocabulary")


def _tokenizer_of(model: str, revision: str | None) -> Tokenizer:
    from clearhead import zoo
    from clearhead.text import load_tokenizer

    folder = Path(model).expanduser()
    if folder.is_dir():  # a tokenizer needs no config.json
        return load_tokenizer(folder)
    card = zoo.cards().get(model)
    if card is not None and card.make is not None:
        return card.make(None)[1]
    if card is not None and card.folder is not None:
        return load_tokenizer(card.folder)
    from clearhead.hub.locate import locate

    return load_tokenizer(locate(model, revision, zoo.hint(model), weights=False))


def _train(files: list[Path], kind: str, vocab_size: int, folder: Path) -> None:
    from clearhead.errors import InputError
    from clearhead.text import train_tokenizer

    folder = folder.expanduser()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already and not empty. Choose a new folder.")
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):  # before the work, and not after it
        raise InputError(
            f"{folder} cannot be made: {existing} is no folder that you may write to. Choose another place."
        )
    tokenizer = train_tokenizer(files, kind=kind, vocab_size=vocab_size)
    tokenizer.save(folder)
    note(f"{len(tokenizer):,} pieces, saved in {folder}")
