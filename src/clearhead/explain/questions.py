"""Every question that can be asked of a model: what `clearhead explain` and the studio both offer.

Each stands beside the analysis that answers it; here they are collected, in the order of a list.
"""

from __future__ import annotations

from clearhead.errors import InputError, did_you_mean
from clearhead.explain.ablation import QUESTION as ABLATION
from clearhead.explain.alignment_steps import QUESTION as ALIGNMENT_STEPS
from clearhead.explain.attention import QUESTION as ATTENTION
from clearhead.explain.attention_steps import QUESTION as ATTENTION_STEPS
from clearhead.explain.beams import QUESTION as BEAMS
from clearhead.explain.caching import QUESTION as CACHE
from clearhead.explain.echo import QUESTION as ECHO
from clearhead.explain.factors import QUESTION as FACTORS
from clearhead.explain.gates import QUESTION as GATES
from clearhead.explain.hidden_states import COMPARISON_QUESTION as COMPARISON
from clearhead.explain.hidden_states import QUESTION as HIDDEN_STATES
from clearhead.explain.length_curve import QUESTION as LENGTH_CURVE
from clearhead.explain.neighbours import QUESTION as NEIGHBOURS
from clearhead.explain.neuron_probe import QUESTION as NEURON_PROBE
from clearhead.explain.neurons import QUESTION as NEURONS
from clearhead.explain.neurons import TOP_TOKENS_QUESTION as TOP_TOKENS
from clearhead.explain.next_token import QUESTION as NEXT_TOKEN
from clearhead.explain.parameters import QUESTION as PARAMETERS
from clearhead.explain.patching import QUESTION as PATCHING
from clearhead.explain.positions import QUESTION as POSITIONS
from clearhead.explain.prediction import QUESTION as PREDICTION
from clearhead.explain.query_key import QUESTION as QUERY_KEY
from clearhead.explain.question import Question
from clearhead.explain.saliency import QUESTION as SALIENCY
from clearhead.explain.sampling import QUESTION as SAMPLING
from clearhead.explain.similarity import QUESTION as SIMILARITY
from clearhead.explain.text_pictures import QUESTION as TEXT_PICTURES
from clearhead.explain.walk import QUESTION as WALK
from clearhead.explain.word_in_context import QUESTION as WORD_IN_CONTEXT
from clearhead.explain.word_map import QUESTION as WORD_MAP
from clearhead.messages import say
from clearhead.schema import shown

_ALL = (
    ATTENTION, QUERY_KEY, ATTENTION_STEPS, ALIGNMENT_STEPS, ABLATION,
    SALIENCY, PATCHING,
    HIDDEN_STATES, COMPARISON, SIMILARITY,
    NEURONS, TOP_TOKENS, NEURON_PROBE, FACTORS, GATES, ECHO,
    NEXT_TOKEN, SAMPLING, BEAMS, CACHE, PREDICTION, TEXT_PICTURES, WALK,
    NEIGHBOURS, WORD_MAP, WORD_IN_CONTEXT,
    POSITIONS, PARAMETERS, LENGTH_CURVE,
)  # fmt: skip
QUESTIONS: dict[str, Question] = {one.name: one for one in _ALL}


def question(name: str) -> Question:
    """By its name; an unknown one is an error that names those that are near."""
    if not isinstance(name, str) or name not in QUESTIONS:
        near = _by_title(str(name)[:60]) or did_you_mean(str(name)[:60], QUESTIONS)
        raise InputError(say("questions.unknown", name=shown(name), near=near, known=list(QUESTIONS)))
    return QUESTIONS[name]


def _by_title(words: str) -> str:
    """The question whose title has these words: people ask for the logit lens, and it is called hidden-states."""
    wanted = words.lower().replace("-", " ").replace("_", " ")
    titled = [question.name for question in QUESTIONS.values() if wanted in question.title.lower()]
    return say("errors.did_you_mean", names=titled[0]) if wanted and titled else ""
