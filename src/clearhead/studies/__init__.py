"""Small experiments from well-known articles, each one call: what a frozen encoder knows, and where it knows it."""

from clearhead.studies.features import FeaturesStudy, features
from clearhead.studies.sentiment import SentimentStudy, sentiment
from clearhead.studies.similarity import SimilarityStudy, similarity

__all__ = ["FeaturesStudy", "SentimentStudy", "SimilarityStudy", "features", "sentiment", "similarity"]
