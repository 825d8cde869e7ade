"""The trained models that ship with Clearhead: a folder each, and a line about each. There is no code here.

`clearhead` imports this package where it is installed and loads from it by name: `ch.load("stories")`.
"""

from pathlib import Path

MODELS = Path(__file__).parent / "models"  # models/NAME: packed weights, tokenizer, card.md, recipe.yaml, curve.json

CARDS = {  # name: (family, what it is); the long story is in its folder, in card.md
    "stories": ("gpt2", "a small GPT-2 that writes like an old children's book"),
    "bert-mini": ("bert", "a small BERT, as published: masked words and next sentence (old books)"),
    "sentiment": ("bert", "bert-mini, fine-tuned: is a sentence about a film kind or not (SST-2)"),
    "intents": ("bert", "bert-mini, fine-tuned: which of 77 things a bank's customer wants (banking77)"),
    "translate-en-de": ("transformer", "the 2017 Transformer, small: English captions to German (Multi30k)"),
    "translate-en-fr": ("transformer", "the same to French (Multi30k)"),
    "translate-en-zh": ("transformer", "the same for short everyday sentences to Chinese (Tatoeba)"),
}
