"""What a call of generate says of itself when it is over: how fast it was, what ran, and what was asked for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.generate import Options
    from clearhead.pipeline.generation import TextGeneration


def seconds(generation: TextGeneration) -> float:
    """From the beginning to the last token."""
    return generation.times[-1] if generation.times else 0.0


def tokens_per_second(generation: TextGeneration) -> float:
    return generation.new_tokens / max(seconds(generation), 1e-9)


def speed(generation: TextGeneration) -> str:
    """How fast it was, and what ran."""
    import torch

    from clearhead.generate.cuda_graphs import why_not_recordable
    from clearhead.nn.fast import cpu_kernels

    model, run, options, times = generation.model, generation.run, generation.options, generation.times
    session = run.session
    read = session.prompt_length if session.encoder_ids is None else session.encoder_ids.shape[1]
    line = (
        f"{generation.new_tokens} tokens in {seconds(generation):.2f} s: {tokens_per_second(generation):,.0f} tokens/s"
    )
    if len(times) > 1:
        rate = (generation.new_tokens - generation.new_tokens / len(times)) / (times[-1] - times[0])
        line += f" ({read} read and the first written in {times[0] * 1000:,.0f} ms, then {rate:,.0f} tokens/s)"
    if run.speculative is not None:
        calls = run.speculative.model_calls
        line += f"; speculative decoding: the model ran {calls} times, {generation.new_tokens / calls:.1f} tokens each"
    kind = model.quantized or str(model.dtype).removeprefix("torch.")
    if model.device.type == "cpu":
        threads = torch.get_num_threads()
        where = f"CPU, {threads} thread{'s' if threads > 1 else ''}, "
        where += "native kernels" if cpu_kernels.loaded is not None else "torch's own kernels"
    else:
        plain = options.num_beams == 1 and run.speculative is None and options.penalty_alpha is None
        graphs = plain and options.cuda_graphs is not False and why_not_recordable(model) is None
        where = f"{model.device}" + (", CUDA graphs" if graphs else "")
    decoding = _decoding_name(options)
    return f"{line}.\n{model.family.title}, {model.num_parameters():,} parameters, {kind}, {where}; {decoding}."


def _decoding_name(options: Options) -> str:
    if options.penalty_alpha is not None:
        return "contrastive search"
    if options.num_beams > 1:
        return f"a search with {options.num_beams} beams" + (", drawn at random" if options.samples else "")
    return "drawn at random" if options.samples else "the likeliest token each time (greedy)"


def options_of(generation: TextGeneration) -> dict[str, Any]:
    """What was asked for and differs from the defaults, as plain data."""
    from clearhead.generate import Options

    plain = Options()
    hidden = {"return_dict_in_generate", "grammar", "assistant_model"}
    fields = [f.name for f in dataclasses.fields(Options) if f.name not in hidden]
    values = {n: getattr(generation.options, n) for n in fields if getattr(generation.options, n) != getattr(plain, n)}
    return values | {"max_new_tokens": generation.run.max_new_tokens}
