"""What `ch.load` returns: a model with its codec, by what goes in and comes out."""

from clearhead.pipeline.answer import Answer
from clearhead.pipeline.base import Pipeline, Reading
from clearhead.pipeline.classify import ScoredLabel
from clearhead.pipeline.clip import ClipPipeline, PictureHit
from clearhead.pipeline.fill import MaskFill
from clearhead.pipeline.loading import PIPELINES, folder_of, load
from clearhead.pipeline.pictures import PicturePipeline
from clearhead.pipeline.search import SearchHit
from clearhead.pipeline.tag import Entity
from clearhead.pipeline.text import JOBS, TextPipeline, as_text
from clearhead.pipeline.word_vectors import WordVectors, as_word_vectors

__all__ = [
    "JOBS",
    "PIPELINES",
    "Answer",
    "ClipPipeline",
    "Entity",
    "MaskFill",
    "PictureHit",
    "PicturePipeline",
    "Pipeline",
    "Reading",
    "ScoredLabel",
    "SearchHit",
    "TextPipeline",
    "WordVectors",
    "as_text",
    "as_word_vectors",
    "folder_of",
    "load",
]
