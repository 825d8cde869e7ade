"""The tokenizer room: text to token ids and back, training, files, and streaming."""

from clearhead.text.encoding import Encoding
from clearhead.text.load import load_tokenizer
from clearhead.text.stream import TextStream
from clearhead.text.tokenizer import Tokenizer
from clearhead.text.train import train_tokenizer

__all__ = ["Encoding", "TextStream", "Tokenizer", "load_tokenizer", "train_tokenizer"]
