"""What `ch.load` returns: a model with its codec, taking and giving what people have."""

from clearhead.pipeline.pipeline import Guess, Pipeline, folder_of, load

__all__ = ["Guess", "Pipeline", "folder_of", "load"]
