"""The pipeline of transformers over the same folder, to compare with."""

from pathlib import Path
from typing import Any

import transformers

from clearhead.pipeline import TextPipeline

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

TEXTS = [
    "the cat sat on the mat and the cat ran",
    "a dog",
    "unbelievably, the cat ran! don't",
    "the dog sat on the sofa: 我喜欢猫 the cat",
]


def reference(pipe: TextPipeline, task: str, folder: Path, **options: Any) -> Any:
    pipe.save(folder)
    return transformers.pipeline(task, model=str(folder), **options)
