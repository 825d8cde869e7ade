"""clearhead models: what there is, and what a model is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.style import note, open_pipeline, out, print_json, waiting
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.hub.describe import Description
    from clearhead.zoo import Card

app = typer.Typer(
    help="List shipped models, families and their published sizes; describe or export one.", rich_markup_mode="rich"
)


@app.callback(invoke_without_command=True)
def listing(
    context: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """List the models that ship with Clearhead, then the families it knows and their published sizes."""
    if context.invoked_subcommand is not None:
        if as_json:
            raise InputError(
                "--json before a verb is for the list of models. Where a verb has it, it stands behind it."
            )
        return
    with waiting("Looking …"):
        from clearhead import zoo
        from clearhead.models import families

        known, shipped = families(), [_shipped(card) for card in zoo.cards().values()]
    if as_json:
        print_json(
            {
                "shipped": shipped,
                "families": [
                    {
                        "name": f.name,
                        "title": f.title,
                        "tasks": list(f.architectures),
                        "presets": list(f.presets),
                    }
                    for f in known
                ],
            }
        )
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("shipped model", "verb", "size"):
        table.add_column(column, no_wrap=True, justify="right" if column == "size" else "left")
    table.add_column("what it is", overflow="fold")
    for row in shipped:
        size = "" if row["bytes"] is None else _size(row["bytes"])
        table.add_row(f"[bold]{row['name']}[/bold]", row["verb"], size, row["about"])
    out().print(table)
    if not zoo.is_installed():
        out().print(zoo.hint("").strip(), markup=False)
    out().print()
    table = Table(box=None, padding=(0, 2, 1, 0), header_style="dim")
    for column in ("family", "published sizes (presets)", "tasks"):
        table.add_column(column, overflow="fold")
    for family in known:
        table.add_row(
            f"[bold]{family.name}[/bold]\n{family.title}",
            "\n".join(family.presets),
            ", ".join(family.architectures),
        )
    out().print(table)
    out().print("What one is made of:  clearhead models describe gpt2-xl", style="dim")


# The verb that a head is for.
VERBS = {
    "causal-lm": "generate",
    "masked-lm": "fill",
    "pretraining": "fill",
    "seq2seq-lm": "translate",
    "sequence-classification": "classify",
    "token-classification": "tag",
    "question-answering": "answer",
    "features": "embed",
    "word-vectors": "vectors",
}


def _shipped(card: Card) -> dict[str, Any]:
    """A shipped model in plain data: what it is for, and what its weights take on the disk (None: it has no files)."""
    from clearhead import hub
    from clearhead.hub import read_config
    from clearhead.models import family

    own, task, size = family(card.family), "", None
    if card.folder is not None:
        raw = read_config(hub.transformer_folder(card.folder))[2]
        task = "features" if hub.is_sentence_folder(card.folder) else own.task_of(str(raw["architectures"][0])) or ""
        size = sum(path.stat().st_size for path in card.folder.rglob("*.safetensors"))
    task = task or own.default_task
    verb = VERBS.get(task, "")
    return {"name": card.name, "family": card.family, "task": task, "verb": verb, "bytes": size, "about": card.about}


@app.command()
def card(name: Annotated[str, typer.Argument(help="A shipped model, such as translate-en-de.")]) -> None:
    """The card of a shipped model: data, licence, recipe, and how good it is.

    Example:  clearhead models card translate-en-de
    """
    from rich.markdown import Markdown

    from clearhead import zoo

    folder = zoo.cards()[name].folder if name in zoo.cards() else None
    if folder is None:
        carded = [card.name for card in zoo.cards().values() if card.folder is not None]
        raise InputError(f"{name} has no card.{zoo.hint(name)} There are: {', '.join(carded) or 'none'}.")
    out().print(Markdown((folder / "card.md").read_text(encoding="utf-8")))


@app.command()
def describe(
    name: Annotated[str, typer.Argument(help="A preset (gpt2-xl), a folder, a shipped name or a hub id.")],
    task: Annotated[str | None, typer.Option(help="With which head; default: the usual one.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub model.")] = None,
    training: Annotated[bool, typer.Option("--training", help="Say what training it takes (docs/scaling.md).")] = False,
    gpus: Annotated[int | None, typer.Option(min=1, help="With --training: how many GPUs; default: 8.")] = None,
    peak: Annotated[
        float | None, typer.Option(min=0.001, help="TFLOP/s of one GPU at best; default: 989, an H100 in bf16.")
    ] = None,
    mfu: Annotated[
        float | None, typer.Option(min=0.001, max=1, help="Model FLOPs utilisation: the part used; default: 0.4.")
    ] = None,
    tokens: Annotated[float | None, typer.Option(help="How many tokens it reads; default: 20 per parameter.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Layers, shapes, parameters, memory, FLOPs and cache of a model, without allocating its weights.

    Example:  clearhead models describe gpt3-175b --training --gpus 1024
    """
    for option, value in (("--gpus", gpus), ("--peak", peak), ("--mfu", mfu), ("--tokens", tokens)):
        if value is not None and not training:
            raise InputError(f"{option} is about training: it goes with --training.")
    with waiting(f"Measuring {name} …"):
        described = _describe(name, task, revision)
        estimate = _estimate(described, gpus or 8, peak or 989.0, mfu or 0.4, tokens) if training else None
    if as_json:
        print_json(_as_dict(described) | ({"training": estimate} if estimate is not None else {}))
        return
    _print(described)
    if estimate is not None:
        _print_estimate(estimate)


@app.command()
def export(
    name: Annotated[str, typer.Argument(help="A folder, a shipped name or a hub id.")],
    folder: Annotated[str, typer.Argument(help="Where to write it: a new folder; word vectors also .txt or .bin.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model that was saved there.")] = False,
) -> None:
    """Write a model as a folder that transformers opens; the 2017 Transformer as Marian or Pegasus, where it can be.

    Word vectors are written as word2vec files, which gensim opens: .txt or .bin.

    Examples:

      clearhead models export translate-en-de en-de

      clearhead models export glove glove.bin
    """
    pipe = open_pipeline(name)
    words = pipe.model.family.modality == "word-vectors"
    pipe.save(folder, overwrite=overwrite, format=None if words else "transformers")
    note(f"Written to {folder}. Open it with {'gensim' if words else 'transformers'}, or with Clearhead.")


@app.command()
def tree(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a tree.")] = False) -> None:
    """Draw the family tree: each child with what it changed from its parent.

    The changes are read off the assembled models, not written down.
    """
    with waiting("Comparing …"):
        from clearhead.models import families, family
        from clearhead.models.compare import children, differences

        known = {fam.name: (fam, differences(family(fam.parent), fam) if fam.parent else []) for fam in families()}
    if as_json:
        print_json(
            [
                {"name": n, "parent": fam.parent, "changed": [{"part": p, "from": a, "to": b} for p, a, b in changed]}
                for n, (fam, changed) in known.items()
            ]
        )
        return
    from rich.text import Text
    from rich.tree import Tree

    def grow(parent: str | None, branch: Tree) -> None:
        for fam in children(parent):
            label = Text.assemble((fam.name, "bold"), f"  {fam.title}")
            for part, _, now in known[fam.name][1]:
                label.append(f"\n{part}: ", style="dim")
                label.append(now)
            grow(fam.name, branch.add(label))

    root = Tree("attention", hide_root=True)
    grow(None, root)
    out().print(root)


@app.command()
def diff(
    first: Annotated[str, typer.Argument(help="A family, such as bert.")],
    second: Annotated[str, typer.Argument(help="Another, such as gpt2.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show the parts in which two families differ.

    Example:  clearhead models diff bert gpt2
    """
    with waiting("Comparing …"):
        from clearhead.models import family
        from clearhead.models.compare import differences

        rows = differences(family(first), family(second))
    if as_json:
        print_json([{"part": p, first: a, second: b} for p, a, b in rows])
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("part", first, second):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    out().print(table if rows else f"{first} and {second} are built from the same parts; they differ in training.")


def _describe(name: str, task: str | None, revision: str | None) -> Description:
    from clearhead import zoo
    from clearhead.hub import architecture_of, locate, read_config
    from clearhead.hub.describe import describe as measure
    from clearhead.models import presets

    known = presets()
    if name in known:
        return measure(name, known[name], known[name].preset(name), task)
    card = zoo.cards().get(name)
    if card is not None and card.make is not None:
        model, _ = card.make(task)
        return measure(name, model.family, model.config, model.task)
    shipped = None if card is None else card.folder
    family, config, raw = read_config(shipped or locate(name, revision, zoo.hint(name, known), weights=False))
    if config.unknown:
        note(f"Not known, and not counted: {', '.join(map(config.unknown_option, config.unknown))}.")
    return measure(name, family, config, task or family.task_of(architecture_of(raw) or ""))


def _as_dict(d: Description) -> dict[str, Any]:
    from clearhead.hub.describe import BYTES

    return {
        "name": d.name,
        "family": d.family,
        "task": d.task,
        "config": d.config.to_dict(),
        "parameters": d.parameters,
        "parts": [
            {"name": p.name, "shape": list(p.shape), "count": p.count, "parameters": p.parameters} for p in d.parts
        ],
        "memory_bytes": {dtype: d.memory(dtype) for dtype in BYTES},
        "flops_per_token": d.flops_per_token,
        "flops_context": d.flops_context,
        "cache_bytes_per_token": {dtype: d.cache_bytes_per_token(dtype) for dtype in ("float32", "bfloat16")},
    }


def _print(d: Description) -> None:
    from rich.table import Table

    from clearhead.hub.describe import BYTES

    c = d.config
    console = out()
    console.print(f"[bold]{d.name}[/bold]  {d.family}, {d.task}")
    console.print(
        f"{c.num_hidden_layers} layers, {c.hidden_size:,} wide, "
        + (f"{c.num_attention_heads} heads, " if hasattr(c, "num_attention_heads") else "")
        + (f"{c.vocab_size:,} words" if c.vocab_size else "any word")
        + (f", {d.context:,} positions" if d.context else "")
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("part", overflow="fold")
    table.add_column("shape", justify="right", no_wrap=True)
    table.add_column("×", justify="right", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    for part in d.parts:
        shape = " × ".join(f"{n:,}" for n in part.shape)
        count = str(part.count) if part.count > 1 else ""
        table.add_row(part.name, shape, count, f"{part.parameters:,}" if part.parameters else "shared")
    table.add_row("", "", "", "─" * len(f"{d.parameters:,}"))
    table.add_row("[bold]all[/bold]", "", "", f"[bold]{d.parameters:,}[/bold]")
    console.print(table)
    memory = ", ".join(f"{_size(d.memory(dtype))} in {dtype}" for dtype in BYTES)
    console.print(f"Memory for the weights: {memory}")
    console.print(f"Forward pass: {_flops(d.flops_per_token)} per token, at position {d.flops_context:,}")
    if d.cache_values_per_token:
        each = d.cache_bytes_per_token("bfloat16")
        full = f", {_size(each * d.context)} for {d.context:,} tokens" if d.context else ""
        console.print(f"Key/value cache: {_size(each)} per token in bfloat16{full}")


def _estimate(d: Description, gpus: int, peak: float, mfu: float, tokens: float | None) -> dict[str, Any]:
    """What training takes, in numbers."""
    cost = d.training
    read = tokens or 20.0 * cost.parameters
    speed = cost.tokens_per_second(gpus, peak * 1e12, mfu)
    return {
        "length": cost.length,
        "state_bytes": cost.state_bytes,
        "state_bytes_per_gpu": cost.state_bytes / gpus,
        "activation_bytes_per_token": cost.activation_bytes,
        "checkpointed_bytes_per_token": cost.checkpointed_bytes,
        "layer_bytes_per_token": cost.layer_bytes,
        "flops_per_token": cost.flops_per_token,
        "gpus": gpus,
        "peak_tflops": peak,
        "mfu": mfu,
        "tokens": read,
        "tokens_per_second": speed,
        "days": read / speed / 86_400,
    }


def _print_estimate(e: dict[str, Any]) -> None:
    console = out()
    kept, less = (e[f"{name}_bytes_per_token"] for name in ("activation", "checkpointed"))
    console.print(f"\n[bold]Training[/bold]  AdamW, fp32 with products in bf16, sequences of {e['length']:,} tokens")
    console.print(
        f"Weights, gradients, optimiser: {_size(e['state_bytes'])} (16 bytes per parameter); "
        f"spread over {e['gpus']:,} GPUs (fsdp) {_size(e['state_bytes_per_gpu'])} each"
    )
    console.print(
        f"Activations: {_size(kept)} per token, {_size(kept * e['length'])} per sequence; "
        f"with gradient_checkpointing {_size(less)}, and {_size(e['layer_bytes_per_token'])} for the layer at work"
    )
    console.print(f"Forward and backward: {_flops(e['flops_per_token'])} per token")
    console.print(
        f"{e['gpus']:,} GPUs at {e['mfu']:.0%} MFU of {e['peak_tflops']:,g} TFLOP/s: "
        f"{e['tokens_per_second']:,.0f} tokens/s; {e['tokens'] / 1e9:,.4g} billion tokens in {_days(e['days'])}"
    )


def _days(days: float) -> str:
    return f"{days:,.1f} days" if days >= 1 else f"{days * 24:,.1f} hours"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _flops(count: float) -> str:
    for unit in ("FLOP", "kFLOP", "MFLOP", "GFLOP"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TFLOP"
