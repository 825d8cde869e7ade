"""The line to try a model with that was just trained: the verb of its job, on one line."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.errors import ClearheadError

if TYPE_CHECKING:
    from clearhead.train import Recipe

# What is said behind `clearhead`, by what was learned; the model is named after it.
_LINES = {
    "span-corruption": 'generate "The cat <extra_id_0> on the mat."',
    "denoising": 'generate "Your text here." --num-beams 4',
    "classification-distillation": 'classify "Your text here."',
    "gpt-classification": 'classify "_start_Your text here._classify_"',  # its texts stand between tokens of their own
    "gpt-entailment": 'classify "_start_A cat sat._delimiter_An animal sat._classify_"',
    "tagging": 'tag "Your text here."',
    "question-answering": 'answer "Who sat?" "A cat sat on the mat."',
    "multiple-choice": 'explain prediction "The cat" --set choices="sat., is a number."',
    "replaced-token": 'explain prediction "The cat sat on the mathematics."',
    "permutation-lm": 'explain attention "The cat sat on the mat."',
    "gpt-similarity": 'explain attention "The cat sat on the mat."',
    "gpt-multiple-choice": 'explain prediction "_start_Cats_delimiter_" --set choices="no_classify_, yes_classify_"',
}
_FILLS = ("masked-lm", "bert-pretraining", "sentence-order", "distillation", "translation-lm")
_TRANSLATES = ("transformer", "marian", "mbart", "m2m_100")
_SUMMARIZES = ("bart", "pegasus", "bigbird_pegasus")


def next_command(recipe: Recipe, model: Path) -> str:
    name = recipe.objective["name"]
    if name in ("causal-lm", "recurrent-lm", "retrieval-lm", "prompted-lm"):
        line = f'generate "{recipe.evaluation.sample or "Once upon a time"}" --top-k 40'
    elif name in _FILLS:
        from clearhead.text import load_tokenizer

        line = f'fill "The cat {load_tokenizer(model).mask_token} on the mat."'
    elif name.startswith("sentence-") or name == "bidirectional-lm":
        line = 'embed "A cat." "A kitten." "Stock prices."'
    elif name == "image-text-contrastive":
        line = f'classify {_quoted(_first_picture(recipe))} --labels "a cat,a dog"'
    elif name == "word-vectors":
        line = f'vectors "{_asked(model)}"'
    elif name == "seq2seq":
        line = f'{_verb(model)} "Your text here." --num-beams 4'
    elif name == "classification":
        line = 'classify "Your text here."' + (' --pair "Another text."' if _has_pairs(recipe) else "")
    else:
        line = _LINES[name]
    return f"clearhead {line} -m {_quoted(model)}"


def _asked(model: Path) -> str:
    """The best-known question to word vectors, where they know its words; else a common word of some length."""
    from clearhead.text.word_vectors import Words

    words = Words.load(model)
    if all(word in words for word in ("king", "man", "woman")):
        return "king - man + woman"
    return next((word for word in words if len(word) > 4), words[0])


def _verb(model: Path) -> str:
    """What an encoder–decoder of this family is mostly trained for."""
    family = json.loads((model / "config.json").read_text(encoding="utf-8")).get("model_type")
    return "translate" if family in _TRANSLATES else "summarize" if family in _SUMMARIZES else "generate"


def _has_pairs(recipe: Recipe) -> bool:
    """Whether the first record of the training data has a second text."""
    from clearhead.train.data import open_source

    with suppress(ClearheadError, StopIteration):
        columns = recipe.data.columns or None
        record = next(open_source(recipe.data.train, format=recipe.data.format, columns=columns).records())
        return record.get("text_pair") is not None
    return False


def _first_picture(recipe: Recipe) -> Path:
    """One that it has seen, to begin with."""
    from clearhead.train.data import open_source

    with suppress(ClearheadError, StopIteration):
        columns = recipe.data.columns or None
        record = next(open_source(recipe.data.train, format=recipe.data.format, columns=columns).records())
        return Path(str(record["image"]))
    return Path("photo.jpg")


def _quoted(model: Path) -> str:
    return f'"{model}"' if " " in str(model) else str(model)
