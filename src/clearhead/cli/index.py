"""clearhead index: a store of chunks and their vectors. Build it, search it, look at it, check it."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.batch_job import INTERRUPTED
from clearhead.cli.document_reader import DocumentReader, ReadingOptions
from clearhead.cli.options import with_group
from clearhead.cli.progress import progress
from clearhead.cli.style import note, out, print_json, show_warnings, table_of, waiting
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.retrieval import BuildReport, Store

app = typer.Typer(
    help="A store of texts for retrieval (LanceDB): build, search, show, check, delete.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="A folder, an address such as s3://bucket/store, or a shipped store.")
]
EncoderOption = Annotated[
    str | None, typer.Option("--encoder", "-e", help="The store's encoder, if it is elsewhere now.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, …")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class IndexChoice(StrEnum):
    auto = "auto"
    exact = "exact"
    ivf_pq = "ivf-pq"


class MetricChoice(StrEnum):
    cosine = "cosine"
    l2 = "l2"


@app.command("build")
@with_group("reading")
def build_command(
    *,
    folder: Folder,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE …", help="Text files, JSONL, tables, folders, or hf:NAME for a data set."),
    ],
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", "-e", help="Whose vectors are kept; default: bert-mini, or the store's own."),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="The model whose tokens chunks are counted in; default: the encoder.")
    ] = None,
    chunk_size: Annotated[int | None, typer.Option(min=1, help="Tokens of a chunk; default: 64.")] = None,
    metric: Annotated[
        MetricChoice | None, typer.Option(help="How alike two vectors are; default: cosine.", show_default=False)
    ] = None,
    index: Annotated[
        IndexChoice, typer.Option(help="Search exactly or by an IVF-PQ index; auto: by size.")
    ] = IndexChoice.auto,
    ray: Annotated[
        str | None,
        typer.Option(help="Embed on a Ray cluster at this address; local: on this machine.", metavar="ADDRESS"),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="With --ray: how many processes embed.")] = 2,
    device: Device = None,
    reading: ReadingOptions,
    as_json: AsJson = False,
) -> None:
    """Build a store, or bring one up to date: texts are cut into chunks of 64 tokens, each with its vector.

    Run it again with the same files: what is there is left alone, what has
    changed is replaced, what a file no longer holds is removed. Stopped, even
    killed, the same command goes on: nothing is lost, and nothing twice.

    Examples:

      clearhead index build store texts/*.txt

      clearhead index build store articles.jsonl --column body --id-column url

      clearhead index build store hf:wikimedia/wikipedia --encoder BAAI/bge-small-en-v1.5 --device cuda

      clearhead index build s3://bucket/store texts/ --ray auto --workers 8
    """
    show_warnings()
    corpus = DocumentReader.open(files, reading)
    with waiting("Getting ready …"):
        from clearhead.retrieval.building import RayOptions, build
    read, embedded = 0, 0
    with progress() as watch:

        def show() -> None:
            watch(f"Embedding ({embedded:,} chunks)", read, corpus.size or read + 1)

        def reads(count: int) -> None:
            nonlocal read
            read += count
            show()

        def embeds(count: int) -> None:
            nonlocal embedded
            embedded += count
            show()

        try:
            report = build(
                folder, corpus.read(reads), encoder=encoder, tokenizer=tokenizer, chunk_size=chunk_size,
                metric=None if metric is None else metric.value, index=index.value, device=device,
                ray=None if ray is None else RayOptions(ray, workers), advance=embeds,
            )  # fmt: skip
        except KeyboardInterrupt:
            note(f"Stopped. What was embedded is kept in {folder}; the same command goes on.")
            raise typer.Exit(INTERRUPTED) from None
    _show_report(folder, report, as_json)


def _show_report(folder: str, report: BuildReport, as_json: bool) -> None:
    from clearhead.retrieval import Store

    chunks = len(Store(folder))
    if as_json:
        print_json(asdict(report) | {"store": folder, "embedded": report.chunks, "chunks": chunks})
        return
    done = {
        "added": report.added,
        "replaced": report.replaced,
        "removed": report.removed,
        "unchanged": report.unchanged,
    }
    counts = ", ".join(f"{count:,} {what}" for what, count in done.items() if count) or "nothing to do"
    out().print(f"{folder}: {chunks:,} chunks. Documents: {counts}.", markup=False)
    for names, why in (
        (report.empty, "hold nothing that the tokenizer reads, and are left out"),
        (report.repeated, "were given twice; the first counts"),
    ):
        if names:
            note(f"{len(names):,} documents {why}: {', '.join(names[:3])}{' …' if len(names) > 3 else ''}.")
    if report.unknown:
        note(
            f"Of {report.unknown:,} chunks the encoder knows no word: they cannot be found. Does it know the language?"
        )
    note(f'Search it: clearhead index search {folder} "your question"')


@app.command("search")
def search_command(
    folder: Folder,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in your own words.")],
    top_k: Annotated[int, typer.Option("-k", "--top-k", min=1, help="How many to show.")] = 5,
    exact: Annotated[bool, typer.Option("--exact", help="Compare with every chunk, though there is an index.")] = False,
    probes: Annotated[
        int | None, typer.Option(min=1, help="Cells of the index to look into: more find more.", show_default=False)
    ] = None,
    encoder: EncoderOption = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Find the chunks nearest in meaning, best first. The higher a score, the more alike.

    Examples:

      clearhead index search store "how do bees find their way home"

      clearhead index search store "late delivery" --top-k 20 --json
    """
    store = _open(folder, encoder, device)
    options: dict[str, Any] = {} if probes is None else {"probes": probes}
    with waiting("Searching …"):
        hits = store.search(query, top_k, exact=exact, **options)
    if as_json:
        results = [
            {"text": hit.text, "document": hit.document, "position": hit.position, "score": hit.score,
             "continuation": hit.continuation, "source": hit.source}
            for hit in hits
        ]  # fmt: skip
        print_json({"store": folder, "query": query, "metric": store.settings.metric, "results": results})
        return
    from clearhead.views.terminal.results import draw_hits

    note(f"score: {_METRICS[store.settings.metric]}")
    for line in draw_hits([(hit.score, f"{hit.document} [{hit.position}]", hit.text) for hit in hits], out().width):
        out().print(line)


_METRICS = {
    "cosine": "cosine, from -1 to 1; higher is more alike",
    "l2": "l2, minus the squared Euclidean distance; higher (nearer 0) is more alike",
}


@app.command("show")
def show_command(
    folder: Folder,
    document: Annotated[str | None, typer.Argument(metavar="DOCUMENT", help="One document: all its chunks.")] = None,
    documents: Annotated[bool, typer.Option("--documents", help="List the documents.")] = False,
    as_json: AsJson = False,
) -> None:
    """What a store holds: how it was made, its documents, or the chunks of one.

    Examples:

      clearhead index show store

      clearhead index show store --documents

      clearhead index show store texts/a.txt
    """
    store = _open(folder)
    if document is not None:
        _show_document(store, document, as_json)
        return
    known = store.documents()
    if documents:
        rows = [{"document": name, **one._asdict()} for name, one in sorted(known.items())]
        if as_json:
            print_json(rows)
            return
        for row in rows:
            out().print(f"{row['chunks']:>8,}  {row['document']}", markup=False)
        return
    facts = asdict(store.settings) | {
        "documents": len(known), "chunks": len(store), "search": "ivf-pq" if store.has_index else "exact",
        "score": _METRICS[store.settings.metric],
    }  # fmt: skip
    if as_json:
        print_json(facts)
        return
    out().print(
        table_of({name: f"{value:,}" if isinstance(value, int) else str(value) for name, value in facts.items()})
    )


def _show_document(store: Store, name: str, as_json: bool) -> None:
    chunks = store.chunks(name)
    if not chunks:
        from clearhead.errors import did_you_mean

        near = did_you_mean(name, store.documents())
        raise InputError(f"{store.where} has no document {name}.{near} List them: --documents.")
    if as_json:
        print_json([{"position": chunk.position, "text": chunk.text, "tokens": chunk.tokens} for chunk in chunks])
        return
    for chunk in chunks:
        out().print(f"[{chunk.position}] {chunk.text.strip()}", markup=False)


@app.command("check")
def check_command(
    folder: Folder, encoder: EncoderOption = None, device: Device = None, as_json: AsJson = False
) -> None:
    """Read all of a store and say whether it is whole; the exit status is 0 for a good one and 1 otherwise.

    Every document has all its chunks once and its own text, every vector is
    one, the encoder is the one it was made with, and some chunks are embedded
    again and compared.
    """
    store = _open(folder, encoder, device)
    with waiting("Reading …"):
        report = store.check()
    if as_json:
        print_json({"store": folder, "good": report.is_good} | asdict(report) | asdict(store.settings))
    else:
        settings = store.settings
        out().print(
            f"{folder}: {report.documents:,} documents, {report.chunks:,} chunks of {settings.chunk_size} tokens, "
            f"{settings.width} dimensions, {settings.metric}; encoder {settings.encoder} "
            f"(fingerprint {settings.encoder_fingerprint[:8]}).",
            markup=False,
        )
        for problem in report.problems:
            out().print(f"  {problem}", markup=False)
        out().print("It is whole." if report.is_good else "It is not whole: build it again.")
    if not report.is_good:
        raise typer.Exit(1)


@app.command("delete")
def delete_command(
    folder: Folder,
    documents: Annotated[
        list[str], typer.Argument(metavar="DOCUMENT …", help="Their names, as `index show` lists them.")
    ],
) -> None:
    """Remove documents from a store."""
    store = _open(folder)
    count = store.delete(documents)
    out().print(f"{folder}: {count:,} documents removed; {len(store):,} chunks are left.", markup=False)


@app.command("copy")
def copy_command(
    folder: Folder, to: Annotated[str, typer.Argument(metavar="NEW", help="A folder that is not there yet.")]
) -> None:
    """Copy a store to a new folder, to change it there.

    Examples:

      clearhead index copy facts mine

      clearhead index build mine corrections.jsonl --id-column id
    """
    store = _open(folder)
    with waiting("Copying …"):
        copied = store.copy(to)
    out().print(f"{to}: {len(copied):,} chunks.", markup=False)


def _open(folder: str, encoder: str | None = None, device: str | None = None) -> Store:
    show_warnings()
    with waiting("Opening the store …"):
        from clearhead.retrieval import Store

        return Store(folder, encoder, device)
