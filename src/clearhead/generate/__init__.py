"""Decoding: from scores to tokens. One loop yields a token for every row at a time; `generate` collects them.

run                        one call: generate, stream, and the parts that its options ask for
options                    the options of a call, and how they fit a model
loop                       the loop, greedy decoding and sampling
session                    the model's side of it: prefill, steps, its state; PromptCache
processors, warpers        what changes the scores before a token is chosen
stopping_criteria          when a text is finished
beam_search                beam search; constrained_beam_search: with words that it must write
contrastive_search         contrastive search
speculative                speculative decoding: a draft model, or prompt lookup
constraint                 texts of a given form, as a protocol; grammar/ keeps it: choices, regex, JSON schema
cuda_graphs                steps replayed from CUDA graphs
"""

from clearhead.generate.constraint import TokenConstraint
from clearhead.generate.grammar import Grammar
from clearhead.generate.options import Options
from clearhead.generate.run import Generation, GenerationRun, generate, stream
from clearhead.generate.session import NeighborProvider, PromptCache
from clearhead.generate.stopping_criteria import cut_after

__all__ = [
    "Generation",
    "GenerationRun",
    "Grammar",
    "NeighborProvider",
    "Options",
    "PromptCache",
    "TokenConstraint",
    "cut_after",
    "generate",
    "stream",
]
