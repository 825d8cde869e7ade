"""How word vectors are learnt: skip-gram and CBOW with negative sampling, in C (word2vec.c) and in plain NumPy."""

from clearhead.train.word_vectors.learner import Learner
from clearhead.train.word_vectors.sampling import WordSampling
from clearhead.train.word_vectors.settings import END_OF_SENTENCE, Word2VecSettings

__all__ = ["END_OF_SENTENCE", "Learner", "Word2VecSettings", "WordSampling"]
