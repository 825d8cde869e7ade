"""What `ch.load` returns: a model with its codec, by what goes in and comes out."""

from clearhead.pipeline.base import Pipeline, Reading
from clearhead.pipeline.fill import MaskFill
from clearhead.pipeline.loading import PIPELINES, folder_of, load
from clearhead.pipeline.text import TextPipeline, as_text

__all__ = ["PIPELINES", "MaskFill", "Pipeline", "Reading", "TextPipeline", "as_text", "folder_of", "load"]
