"""Translate and summarise: what an encoder–decoder writes about a text that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clearhead.errors import InputError
from clearhead.generate import Options
from clearhead.pipeline.task_params import all_task_params, task_params
from clearhead.schema import fields_of

if TYPE_CHECKING:
    from clearhead.pipeline.text import TextPipeline


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
    """`generate` with what the checkpoint says of the task: words to begin with, and options that it prefers."""
    stored = task_params(pipe.model.config, task)
    prefix = stored.get("prefix") or ""

    def prefixed(one: Any) -> Any:
        return prefix + one if isinstance(one, str) and not one.startswith(prefix) else one

    preferred = {name: value for name, value in stored.items() if name in fields_of(Options)}
    given = [prefixed(one) for one in text] if isinstance(text, list | tuple) else prefixed(text)
    return pipe.generate(given, truncation=True, **preferred | options)
