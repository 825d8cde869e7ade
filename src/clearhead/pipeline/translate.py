"""Translate and summarise: what an encoder–decoder writes about a text that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clearhead.errors import InputError
from clearhead.generate import Options
from clearhead.pipeline.batches import texts_of
from clearhead.pipeline.task_params import all_task_params, task_params
from clearhead.schema import Field

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline

_BATCH_SIZE = Field(name="batch_size", type=int, default=16, least=1)


def translate(pipe: TextPipeline, text: str | list[str], **options: Any) -> str | list[str]:
    """TextPipeline.translate."""
    _check_writes(pipe, "translate")
    tasks = [name for name in all_task_params(pipe.model.config) if name.startswith("translation_")]
    if tasks and pipe.tokenizer.languages is None:
        return _write(pipe, text, _translation(pipe, tasks, options), options)
    return _write(pipe, text, "translation", options)


def summarize(pipe: TextPipeline, text: str | list[str], **options: Any) -> str | list[str]:
    """TextPipeline.summarize."""
    _check_writes(pipe, "summarize")
    return _write(pipe, text, "summarization", options)


def _check_writes(pipe: TextPipeline, verb: str) -> None:
    if not (pipe.model.is_encoder_decoder and pipe.model.can_generate):
        raise InputError(
            f"{pipe.title} is loaded for {pipe.model.task} and cannot {verb}: that takes an encoder–decoder that "
            "writes. To continue a prompt of your own, use generate."
        )


def _translation(pipe: TextPipeline, tasks: list[str], options: dict[str, Any]) -> str:
    """Which of the translations that the checkpoint lists (T5: translation_en_to_de …) the languages mean."""
    source, target = options.pop("src_lang", None), options.pop("tgt_lang", None)
    fitting = [
        name
        for name in tasks
        if (source is None or name.startswith(f"translation_{source}_to_"))
        and (target is None or name.endswith(f"_to_{target}"))
    ]
    if len(fitting) != 1:
        pairs = ", ".join(name.removeprefix("translation_").replace("_to_", " to ") for name in tasks)
        raise InputError(f'{pipe.title} translates {pairs}: say which, with src_lang="en" and tgt_lang="de".')
    return fitting[0]


def _write(pipe: TextPipeline, text: str | list[str], task: str, options: dict[str, Any]) -> str | list[str]:
    """`generate` with what the checkpoint says of the task: words to begin with, and options that it prefers.

    batch_size   so many texts of a list at once, those of similar length together
    """
    stored = task_params(pipe.model.config, task)
    prefix = stored.pop("prefix", None) or ""
    batch_size = _BATCH_SIZE.check(options.pop("batch_size", _BATCH_SIZE.default))
    texts = [source if source.startswith(prefix) else prefix + source for source in texts_of(text)]
    seeds = _seeds(pipe, len(texts), stored, options)
    order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
    written: dict[int, list[str]] = {}
    for start in range(0, len(texts), batch_size):
        chosen = order[start : start + batch_size]
        seed_options = {} if seeds is None else {"seed": [seed for n in chosen for seed in seeds[n]]}
        answers = pipe.generate([texts[n] for n in chosen], truncation=True, preferred=stored, **options | seed_options)
        each = len(answers) // len(chosen)  # num_return_sequences
        written |= {n: answers[k * each : (k + 1) * each] for k, n in enumerate(chosen)}
    flat = [answer for n in range(len(texts)) for answer in written[n]]
    return flat[0] if isinstance(text, str) and len(flat) == 1 else flat


def _seeds(pipe: TextPipeline, texts: int, stored: dict[str, Any], options: dict[str, Any]) -> list[list[int]] | None:
    """Those of each text, as `generate` would give them: a text has its own, whichever batch it comes to be in."""
    seed_options: dict[str, Any] = {
        n: options[n] for n in ("seed", "num_beams", "num_return_sequences") if n in options
    }
    seeds = (
        Options.from_keywords(seed_options, pipe.model.generation | stored).seeds(texts)
        if seed_options.get("seed") is not None
        else None
    )
    if seeds is None:
        return None
    each = len(seeds) // texts
    return [seeds[n * each : (n + 1) * each] for n in range(texts)]
