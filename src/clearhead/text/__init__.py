"""Text to token ids and back: using a tokenizer (here) and making one (builders/)."""

from clearhead.text.builders import load_tokenizer, train_tokenizer
from clearhead.text.encoding import Encoding
from clearhead.text.files import has_tokenizer
from clearhead.text.stream import TextStream
from clearhead.text.tokenizer import Tokenizer

__all__ = ["Encoding", "TextStream", "Tokenizer", "has_tokenizer", "load_tokenizer", "train_tokenizer"]
