"""Small experiments from well-known articles, each one call: what a frozen encoder knows, and where it knows it."""

from clearhead.studies.features import Features, features
from clearhead.studies.sentiment import Sentiment, sentiment
from clearhead.studies.similarity import Similarity, similarity

__all__ = ["Features", "Sentiment", "Similarity", "features", "sentiment", "similarity"]
