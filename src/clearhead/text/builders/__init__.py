"""Making tokenizers: from the files a model was published with, or by training on text."""

from clearhead.text.builders.load import load_tokenizer
from clearhead.text.builders.train import train_tokenizer

__all__ = ["load_tokenizer", "train_tokenizer"]
