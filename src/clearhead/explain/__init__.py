"""From a trace to a finding: plain dataclasses of numbers and strings, which views draw."""

from clearhead.explain.ablation import Ablation, ablation
from clearhead.explain.alignment_steps import AlignmentSteps, alignment_steps
from clearhead.explain.attention import AttentionWeights, HeadSummary, attention
from clearhead.explain.attention_steps import AttentionSteps, attention_steps
from clearhead.explain.beams import Beams, beams
from clearhead.explain.caching import Caching, caching
from clearhead.explain.drawing import (
    DrawingSteps,
    ForwardProcess,
    NoiseSchedule,
    WordMaps,
    drawing_steps,
    forward_process,
    noise_schedule,
    word_maps,
)
from clearhead.explain.echo import Echo, echo
from clearhead.explain.factors import Factors, factors
from clearhead.explain.finding import Finding
from clearhead.explain.gates import GatesOverTime, gates
from clearhead.explain.hidden_states import Comparison, HiddenStates, hidden_states
from clearhead.explain.induction import induction_scores
from clearhead.explain.length_curve import LengthCurve, length_curve
from clearhead.explain.neighbours import Neighbours, neighbours
from clearhead.explain.neuron_probe import NeuronProbe, neuron_probe
from clearhead.explain.neurons import Neurons, TopTokens, neurons, top_tokens
from clearhead.explain.next_token import NextTokens, next_token
from clearhead.explain.parameters import Parameters, parameters
from clearhead.explain.passages import Passages, passages
from clearhead.explain.patching import Patching, patching
from clearhead.explain.positions import Positions, positions
from clearhead.explain.prediction import Prediction, prediction
from clearhead.explain.query_key import QueryKey, query_key
from clearhead.explain.retrieval_ablation import RetrievalAblation, retrieval_ablation
from clearhead.explain.saliency import Saliency, saliency
from clearhead.explain.sampling import Sampling, sampling
from clearhead.explain.similarity import Similarity, similarity
from clearhead.explain.store_map import StoreMap, store_map
from clearhead.explain.text_pictures import TextPictureMatrix, text_picture_matrix
from clearhead.explain.walk import Walk, walk
from clearhead.explain.word_in_context import WordInContext, WordUse, word_in_context
from clearhead.explain.word_map import WordMap, word_map
from clearhead.units import TokenUnit, WrittenUnit

__all__ = [
    "Ablation",
    "AlignmentSteps",
    "AttentionSteps",
    "AttentionWeights",
    "Beams",
    "Caching",
    "Comparison",
    "DrawingSteps",
    "Echo",
    "Factors",
    "Finding",
    "ForwardProcess",
    "GatesOverTime",
    "HeadSummary",
    "HiddenStates",
    "LengthCurve",
    "Neighbours",
    "NeuronProbe",
    "Neurons",
    "NextTokens",
    "NoiseSchedule",
    "Parameters",
    "Passages",
    "Patching",
    "Positions",
    "Prediction",
    "QueryKey",
    "RetrievalAblation",
    "Saliency",
    "Sampling",
    "Similarity",
    "StoreMap",
    "TextPictureMatrix",
    "TokenUnit",
    "TopTokens",
    "Walk",
    "WordInContext",
    "WordMap",
    "WordMaps",
    "WordUse",
    "WrittenUnit",
    "ablation",
    "alignment_steps",
    "attention",
    "attention_steps",
    "beams",
    "caching",
    "drawing_steps",
    "echo",
    "factors",
    "forward_process",
    "gates",
    "hidden_states",
    "induction_scores",
    "length_curve",
    "neighbours",
    "neuron_probe",
    "neurons",
    "next_token",
    "noise_schedule",
    "parameters",
    "passages",
    "patching",
    "positions",
    "prediction",
    "query_key",
    "retrieval_ablation",
    "saliency",
    "sampling",
    "similarity",
    "store_map",
    "text_picture_matrix",
    "top_tokens",
    "walk",
    "word_in_context",
    "word_map",
    "word_maps",
]
