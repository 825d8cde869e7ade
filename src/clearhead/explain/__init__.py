"""From a trace to a finding: plain dataclasses of numbers and strings, which views draw."""

from clearhead.explain.ablation import Ablation, ablation
from clearhead.explain.attention import Attention, HeadSummary, attention, induction_scores
from clearhead.explain.factors import Factors, factors
from clearhead.explain.finding import Finding
from clearhead.explain.hidden_states import Comparison, HiddenStates, hidden_states
from clearhead.explain.neurons import Neurons, TopTokens, neurons, top_tokens
from clearhead.explain.next_token import NextTokens, next_token
from clearhead.explain.query_key import QueryKey, query_key
from clearhead.explain.reading import Reading, Token, read
from clearhead.explain.saliency import Saliency, saliency
from clearhead.explain.walk import Walk, walk

__all__ = [
    "Ablation",
    "Attention",
    "Comparison",
    "Factors",
    "Finding",
    "HeadSummary",
    "HiddenStates",
    "Neurons",
    "NextTokens",
    "QueryKey",
    "Reading",
    "Saliency",
    "Token",
    "TopTokens",
    "Walk",
    "ablation",
    "attention",
    "factors",
    "hidden_states",
    "induction_scores",
    "neurons",
    "next_token",
    "query_key",
    "read",
    "saliency",
    "top_tokens",
    "walk",
]
