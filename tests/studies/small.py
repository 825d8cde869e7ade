"""A small BERT of five layers on disk, and small data of the kinds that studies read."""

import random

import torch

from clearhead.models import family
from clearhead.pipeline.words import WordPipeline
from clearhead.text import train_tokenizer
from clearhead.text.characters import CharacterCodec
from tests.tiny import tiny_pipeline

GOOD, BAD = "good fine great lovely warm".split(), "bad poor dull awful cold".split()
NAMES, PLACES = "anna peter marie".split(), "berlin paris rome".split()
OTHER = "the film was a story of love and it ran in our town for long".split()


def bert(folder, **more):
    """Saved as a plain model."""
    words = [*GOOD, *BAD, *NAMES, *PLACES, *OTHER]
    tokenizer = train_tokenizer(words * 5, kind="wordpiece", vocab_size=200, min_frequency=1, show_progress=False)
    sizes = {"hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4, "intermediate_size": 64}
    first = {"shaken": False, "initializer_range": 0.2, "hidden_dropout_prob": 0.1}
    tiny_pipeline("bert", "features", tok=tokenizer, **sizes, **first, max_position_embeddings=40, **more).save(folder)
    return folder


def elmo(folder):
    """Saved as a published folder."""
    torch.manual_seed(0)
    sizes = {"lstm_size": 12, "projection_size": 8, "num_hidden_layers": 2, "filters": [[1, 6], [3, 10]]}
    family_ = family("elmo")
    WordPipeline(family_.make(family_.config(**sizes)), CharacterCodec()).save(folder)
    return folder


def sentences(count, seed=0, noise=0.2):
    """(text, label): 1 where good words are in it, and now and then where they are not."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        label = chance.randrange(2)
        words = [chance.choice(OTHER) for _ in range(chance.randrange(2, 9))]
        words.insert(chance.randrange(len(words)), chance.choice(GOOD if label else BAD))
        rows.append((" ".join(words), label if chance.random() > noise else 1 - label))
    return rows


def table(path, rows):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    return path


def tagged(path, count, seed=0):
    """A CoNLL file: people of one or two words, and places."""
    chance = random.Random(seed)
    lines = []
    for _ in range(count):
        for _ in range(chance.randrange(2, 5)):
            lines += [f"{word}\tO" for word in chance.choices(OTHER, k=chance.randrange(1, 4))]
            if chance.random() < 0.5:
                lines.append(f"{chance.choice(PLACES)}\tB-place")
            else:
                lines.append(f"{chance.choice(NAMES)}\tB-person")
                lines += [f"{chance.choice(NAMES)}\tI-person"] * chance.randrange(2)
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
