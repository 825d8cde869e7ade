"""Steps replayed from CUDA graphs: the model, the choice and the end, recorded once, launched as one.

Recording needs shapes and addresses that never change: a cache with all of its capacity always in sight, a prompt
padded on the left to a round length, and the place to write held on the device. Steps of one text through plain layers
are recorded from a few large kernels (`nn/fast/gpu_decode.py`); with `compile`, other layers are compiled first.
A recording is kept with its model and serves every later call of the same shape.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from clearhead.errors import InputError
from clearhead.generate.loop import FINISHED_CHECK_INTERVAL, DecodingStep, sample
from clearhead.generate.options import WARPERS, Options
from clearhead.generate.session import DecodingSession, check_numbers
from clearhead.generate.warpers import warpers
from clearhead.models.heads import LanguageHead
from clearhead.models.model import Model
from clearhead.models.stack_model import TokenModel
from clearhead.nn import Attention
from clearhead.nn.fast import gpu_decode, gpu_gemv
from clearhead.nn.kv_cache import BLOCK, StaticKVCache
from clearhead.nn.linear import Linear
from clearhead.nn.stack import Stack
from clearhead.nn.torch_internals import has_triton, recompile_limit
from clearhead.nn.tracing import is_tracing

MAX_RECORDINGS = 4  # recordings per model; each holds a cache
_recordings: weakref.WeakKeyDictionary[Model, OrderedDict[object, Recording]] = weakref.WeakKeyDictionary()


def why_not_recordable(model: Model) -> str | None:
    """What keeps this model's steps from being recorded here; None if nothing does."""
    if model.device.type != "cuda":
        return f"the model is on {model.device.type}, and only a CUDA device has graphs."
    return why_no_fixed_shapes(model)


def why_no_fixed_shapes(model: Model) -> str | None:
    """What keeps a model from taking steps whose shapes never change."""
    if is_tracing():
        return "a trace is open, and a recording would hide the tensors from it."
    if torch.is_autocast_enabled(model.device.type):
        return "autocast is on: its copies of the weights end with it, and a recording would go on reading them."
    if model.is_encoder_decoder or type(model.output_stack) is not Stack:
        return "only a decoder alone, with keys and values in its cache, can be recorded."
    if model.training:
        return "the model is in training mode; call .eval() first."
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return "a hook listens to the model, and a recording would call it once only."
    stack = model.output_stack
    plain = all(
        type(b.attention) is Attention and b.attention.relative is None and b.window is None for b in stack.blocks
    )
    if stack.position_bias is not None or stack.blank_padding or not plain:
        return f"{model.family.title} looks at distances or windows, which change with every step."
    if any(block.reads_neighbors for block in stack.blocks):
        return f"{model.family.title} looks at neighbours of its text, which change with every chunk."
    return None


class RecordedChoice:
    """The end of a recorded step: scores → warpers → token, on the device and without a look at any value."""

    def __init__(self, options: Options, eos: list[int], pad: int) -> None:
        self.warpers, self.sampled = warpers(options, eos), options.samples
        self.eos, self.pad = eos, pad
        warper_values = tuple(getattr(options, name) for name in WARPERS)
        self.key = (
            self.sampled,
            warper_values,
            options.renormalize_logits,
            tuple(eos),
            pad,
        )  # what a recording of it depends on

    def __call__(self, recording: Recording) -> None:
        scores = recording.logits
        for warp in self.warpers:
            scores = warp(recording.ids, scores)
        if self.sampled:
            token = sample(scores, recording.uniforms.index_select(1, recording.written))
        else:
            token = scores.argmax(-1)
        token = token.masked_fill(recording.finished, self.pad)
        for end in self.eos:
            recording.finished |= token == end
        recording.tokens.index_copy_(1, recording.written, token[:, None])
        recording.done.index_copy_(1, recording.written, recording.finished[:, None])
        recording.ids.copy_(token[:, None])
        recording.written += 1


class Recording:
    """The state of a text being written, at fixed addresses, and the graphs that move it on by one token."""

    def __init__(
        self,
        model: Model,
        rows: int,
        prompt_length: int,
        capacity: int,
        choice: RecordedChoice | None,
        compile: bool = False,
        by_row: bool = False,
    ) -> None:
        """by_row: steps go through `gpu_decode`."""
        device, vocab = model.device, model.config.vocab_size
        self._model = weakref.ref(model)  # recordings are kept by model: they must not keep it alive
        self.choice, self.prompt_length, self.capacity = choice, prompt_length, capacity
        self.compile, self.by_row = compile, by_row
        new = capacity - prompt_length + 1
        self.write_position = torch.zeros(1, dtype=torch.long, device=device)
        self.cache = StaticKVCache(len(model.output_stack.layers), capacity, self.write_position)
        self.prompt_ids = torch.zeros(rows, prompt_length, dtype=torch.long, device=device)
        self.prompt_position_ids = torch.zeros_like(self.prompt_ids)
        self.prompt_mask = torch.zeros(rows, 1, prompt_length, prompt_length, dtype=torch.bool, device=device)
        self.ids = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.position_ids = torch.zeros_like(self.ids)
        self.mask = torch.zeros(rows, capacity, dtype=torch.bool, device=device)
        self.logits = torch.zeros(rows, vocab, device=device)
        self.finished = torch.zeros(rows, dtype=torch.bool, device=device)
        self.written = torch.zeros(1, dtype=torch.long, device=device)
        self.uniforms = torch.zeros(rows, new, device=device)
        self.tokens = torch.zeros(rows, new, dtype=torch.long, device=device)
        self.done = torch.zeros(rows, new, dtype=torch.bool, device=device)
        self._replay: dict[str, Callable[[], None]] = {}

    @property
    def model(self) -> Model:
        model = self._model()
        assert model is not None, "a recording is used with its model at hand"
        return model

    def begin(self, ids: Tensor, mask: Tensor, first: int, uniforms: Tensor | None) -> None:
        """Read the prompt: ids and mask (rows, time), real tokens on the right; leaves scores for the first token."""
        pad = self.prompt_length - ids.shape[1]
        self.prompt_ids.zero_()
        self.prompt_ids[:, pad:] = ids
        self.mask.zero_()
        self.mask[:, pad : self.prompt_length] = mask
        visible = self.mask[:, : self.prompt_length]
        order = torch.ones(self.prompt_length, self.prompt_length, dtype=torch.bool, device=ids.device).tril()
        self.prompt_mask.copy_((order & visible[:, None, :])[:, None])
        counted = visible.long().cumsum(-1)
        self.prompt_position_ids.copy_((counted - 1).clamp(min=0) + first)
        self.position_ids.copy_(counted[:, -1:] + first)
        self.write_position.fill_(self.prompt_length)
        self.finished.zero_()
        self.written.zero_()
        if uniforms is not None:
            self.uniforms[:, : uniforms.shape[1]] = uniforms
        self._run("prompt", self._read_prompt, nullcontext())
        self.cache.filled()

    def step(self) -> None:
        """Read the token in `ids`; scores for the next, and, if the recording chooses, that token."""
        context = compiled(self.model.output_stack.layers) if self.compile and not self.by_row else nullcontext()
        self._run("step", self._read_token, context)

    def choose(self) -> None:
        assert self.choice is not None
        self.choice(self)

    def _read_prompt(self) -> None:
        self.cache.empty()
        self._scores(self.prompt_ids, self.prompt_mask, self.prompt_position_ids)

    def _read_token(self) -> None:
        self.mask.index_fill_(1, self.write_position, True)
        if self.by_row:
            stack, head = self.model.output_stack, self.model.language_head
            assert head is not None and isinstance(head.output, Linear)
            x = stack.embed(self.ids, self.position_ids)
            gpu_decode.decode_step(stack, head.output, x, self.cache, self.mask[0], self.write_position, self.logits)
        else:
            self._scores(self.ids, self.mask[:, None, None], self.position_ids)
        self.write_position += 1
        self.position_ids += 1
        if self.choice is not None:
            self.choice(self)

    def _scores(self, ids: Tensor, mask: Tensor, position_ids: Tensor) -> None:
        out = self.model(
            ids, attention_mask=mask, position_ids=position_ids, past_key_values=self.cache, logits_to_keep=1
        )
        self.logits.copy_(out.logits[:, -1])

    def _run(self, name: str, body: Callable[[], None], context: AbstractContextManager[None]) -> None:
        if self.ids.device.type != "cuda":
            body()
            return
        if name not in self._replay:
            with context:
                self._replay[name] = self._capture(body)
        self._replay[name]()

    def _capture(self, body: Callable[[], None]) -> Callable[[], None]:
        """Run it a few times (which compiles what is to be compiled), put the state back, then record."""
        state = (
            self.write_position,
            self.position_ids,
            self.mask,
            self.finished,
            self.written,
            self.ids,
            self.tokens,
            self.done,
        )
        saved = [tensor.clone() for tensor in state]
        lengths = [layer.length for layer in self.cache.layers]

        def restore() -> None:
            for tensor, value in zip(state, saved, strict=True):
                tensor.copy_(value)
            for layer, length in zip(self.cache.layers, lengths, strict=True):
                layer.length = length

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                body()
                restore()
            torch.cuda.current_stream().synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                body()
        torch.cuda.current_stream().wait_stream(stream)
        restore()
        return graph.replay


class CudaGraphSession:
    """A session whose steps are replayed. A `Session` to the loop."""

    def __init__(self, session: DecodingSession, max_new_tokens: int, copies: int, compile: bool = False) -> None:
        self._session, self._copies = session, copies
        self._key, self._recording = acquire(session, max_new_tokens, copies, None, compile)
        self._tokens = session.tokens

    def close(self) -> None:
        release(self._session.model, self._key, self._recording)

    @property
    def tokens(self) -> Tensor:
        return self._tokens

    def prefill(self) -> Tensor:
        _begin(self._session, self._recording, self._copies, None)
        return self._recording.logits[:: self._copies]

    def repeat(self, count: int) -> None:
        self._tokens = self._tokens.repeat_interleave(count, 0)

    def step(self, chosen: Tensor) -> Tensor:
        self._tokens = torch.cat([self._tokens, chosen[:, None]], 1)
        self._recording.ids.copy_(chosen[:, None])
        self._recording.step()
        return self._recording.logits


def decode(
    session: DecodingSession,
    choice: RecordedChoice,
    uniforms: Tensor | None,
    max_new_tokens: int,
    copies: int,
    compile: bool = False,
) -> Iterator[DecodingStep]:
    """The one loop where nothing but the model and chance decides: a token is one launch, and Python only counts."""
    key, recording = acquire(session, max_new_tokens, copies, choice, compile)
    try:
        _begin(session, recording, copies, uniforms)
        recording.choose()
        for n in range(max_new_tokens):
            if n:
                recording.step()
            yield DecodingStep(recording.tokens[:, n], recording.logits, recording.logits, recording.done[:, n])
            if (
                choice.eos
                and n % FINISHED_CHECK_INTERVAL == FINISHED_CHECK_INTERVAL - 1
                and bool(recording.finished.all())
            ):
                return
    finally:
        release(session.model, key, recording)


def acquire(
    session: DecodingSession, max_new_tokens: int, copies: int, choice: RecordedChoice | None, compile: bool
) -> tuple[object, Recording]:
    """A recording for calls of this shape: kept from an earlier one, or new. Two texts at once need two of them."""
    rows = len(session.tokens) * copies
    prompt_length = _round(session.prompt_length)
    if session.max_length is not None:  # padding must not reach beyond the model's positions
        prompt_length = min(prompt_length, session.max_length)
    capacity = _round(prompt_length + max_new_tokens)
    model = session.model
    if model.device.type == "cuda":
        gpu_gemv.prepare()
    # what moved is recorded anew
    addresses = tuple(part.data_ptr() for part in (*model.parameters(), *model.buffers()))
    by_row = rows == 1 and can_step_by_row(model)
    key = (rows, prompt_length, capacity, addresses, compile, by_row, None if choice is None else choice.key)
    recording = _recordings.setdefault(model, OrderedDict()).pop(key, None)
    return key, recording or Recording(model, rows, prompt_length, capacity, choice, compile, by_row)


def can_step_by_row(model: Model) -> bool:
    """Whether a step of one text can go through `gpu_decode`: plain layers, and a plain matrix over words."""
    head = model.head
    return (
        model.device.type == "cuda"
        and type(model) is TokenModel
        and type(head) is LanguageHead
        and head.transform is None
        and head.scale == 1.0
        and gpu_decode.is_supported(model.output_stack, head.output)
    )


def release(model: Model, key: object, recording: Recording) -> None:
    kept = _recordings.setdefault(model, OrderedDict())
    kept[key] = recording
    while len(kept) > MAX_RECORDINGS:
        kept.popitem(last=False)


def _begin(session: DecodingSession, recording: Recording, copies: int, uniforms: Tensor | None) -> None:
    ids, mask = session.left_padded_prompt()
    if copies > 1:
        ids, mask = ids.repeat_interleave(copies, 0), mask.repeat_interleave(copies, 0)
    recording.begin(ids, mask, session.model.first_position or 0, uniforms)
    check_numbers(recording.logits, session.model)


def _round(length: int) -> int:
    """Up to a power of two, or to a multiple of two blocks: few shapes, little waste."""
    return -(-length // (2 * BLOCK)) * 2 * BLOCK if length > BLOCK else max(16, 1 << (length - 1).bit_length())


@contextmanager
def compiled(layers: nn.ModuleList) -> Iterator[None]:
    """Inside, the layers run compiled. They are alike, so one compilation serves them all."""
    if not has_triton():
        raise InputError("compile needs Triton, which is not installed here. Leave it out: recorded steps go without.")
    for layer in layers:
        layer._compiled_call_impl = torch.compile(layer._call_impl, dynamic=False)
    try:
        with recompile_limit(64):  # every shape that is recorded is compiled for itself
            yield
    finally:
        for layer in layers:
            layer._compiled_call_impl = None
