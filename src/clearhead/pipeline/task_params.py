"""What a checkpoint's config.json says of a task: `task_specific_params`, as transformers' pipelines read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.models import Config


def task_params(config: Config, task: str) -> dict[str, Any]:
    """The settings for a task by its published name ("summarization"); empty where there are none."""
    params = all_task_params(config).get(task)
    return dict(params) if isinstance(params, Mapping) else {}


def all_task_params(config: Config) -> dict[str, Any]:
    params = config.also_stored.get("task_specific_params")
    return dict(params) if isinstance(params, Mapping) else {}
