"""Words in, pictures out: what `ch.load` returns for a Stable Diffusion folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead import hub
from clearhead.errors import CheckpointError, InputError
from clearhead.generate.diffusion import DrawingStep, Guidance, Scheduler, other_scheduler, read_scheduler
from clearhead.hub.config import read_options
from clearhead.hub.diffusers_folder import INPAINT, SCHEDULER_CONFIG, TEXT, index_of, read_parts, save_parts
from clearhead.hub.diffusers_parts import load_part
from clearhead.hub.ldm import load_single_file
from clearhead.messages import say
from clearhead.models import Model
from clearhead.models.autoencoder_kl import Autoencoder
from clearhead.models.picture_part import for_each
from clearhead.models.unet import UNet
from clearhead.pipeline.base import Pipeline
from clearhead.pipeline.draw_options import DrawOptions
from clearhead.pipeline.drawing import Drawing
from clearhead.pipeline.picture_texts import encode_texts, texts_of
from clearhead.text import Tokenizer, has_tokenizer, load_tokenizer

log = logging.getLogger("clearhead")
USUAL_LATENT = 64  # the side of a latent where a file does not say it
OLD_VERSION = (0, 9, 0)  # before it, diffusers wrote a wrong side


class DiffusionPipeline(Pipeline):
    """A UNet with the autoencoder whose latents it draws, the text tower it listens to, and a scheduler.

    `unet`, `vae`, `text_encoder`, `tokenizer`, `scheduler`; `model` is the UNet, so that a trace looks into it.
    """

    reads_text = True

    def __init__(
        self,
        unet: UNet,
        vae: Autoencoder,
        text_encoder: Model,
        tokenizer: Tokenizer | None,
        scheduler: Scheduler,
        name: str = "",
        settings: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(unet, tokenizer, name)
        self.unet, self.vae, self.text_encoder = unet, vae, text_encoder
        self._scheduler = scheduler
        self.settings = settings or {}
        self._check_parts()

    def _check_parts(self) -> None:
        """Parts of different models load one by one; together they would draw nonsense, or fail in the middle."""
        unet, latent = self.unet.config.in_channels, self.vae.config.latent_channels
        if unet not in (latent, 2 * latent + 1):
            raise CheckpointError(say("drawing.channels", unet=unet, vae=latent))
        width = for_each(self.unet.config.cross_attention_dim, 1)[0]
        if width != self.text_encoder.config.hidden_size:
            raise CheckpointError(say("drawing.widths", unet=width, text=self.text_encoder.config.hidden_size))

    @classmethod
    def from_parts(
        cls,
        folder: Path,
        name: str = "",
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
        strict: bool = False,
    ) -> DiffusionPipeline:
        """From a folder with model_index.json."""
        index, parts = read_parts(folder)
        unet = load_part(parts["unet"], index.parts["unet"][1], dtype, device, strict=strict)
        vae = load_part(parts["vae"], index.parts["vae"][1], dtype, device, strict=strict)
        text_encoder = hub.load_model(parts["text_encoder"], "features", dtype, device, strict=strict)
        scheduler = read_scheduler(index.parts["scheduler"][1], read_options(parts["scheduler"] / SCHEDULER_CONFIG))
        assert isinstance(unet, UNet) and isinstance(vae, Autoencoder)
        return cls(unet, vae, text_encoder, load_tokenizer(parts["tokenizer"], "clip"), scheduler, name, index.settings)

    @classmethod
    def from_file(
        cls,
        path: Path,
        vocab: Path | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> DiffusionPipeline:
        """From one safetensors file with the original names. Its words are not in it.

        vocab   a folder with CLIP's tokenizer; by default the file's own, or tokenizer/ in it
        """
        parts = load_single_file(path, dtype, device)
        places = [path.parent, path.parent / "tokenizer"] if vocab is None else [vocab, vocab / "tokenizer"]
        found = next((place for place in places if has_tokenizer(place)), None)
        if found is None and vocab is not None:
            raise CheckpointError(say("drawing.no_words", path=vocab))
        if found is None:
            log.warning(say("drawing.no_words", path=path.parent))
        tokenizer = None if found is None else load_tokenizer(found, "clip")
        scheduler = read_scheduler("PNDMScheduler", parts.scheduler)
        return cls(parts.unet, parts.vae, parts.text_encoder, tokenizer, scheduler, str(path))

    @property
    def tokenizer(self) -> Tokenizer:
        if not isinstance(self.codec, Tokenizer):
            raise InputError(say("drawing.no_words", path=Path(self.name).parent))
        return self.codec

    @property
    def scheduler(self) -> Scheduler:
        """It can be set: to another scheduler, or to the short name of one, which takes over the trained schedule."""
        return self._scheduler

    @scheduler.setter
    def scheduler(self, scheduler: Scheduler | str) -> None:
        self._scheduler = other_scheduler(self._scheduler, scheduler) if isinstance(scheduler, str) else scheduler

    # ---- what it is made for

    @property
    def scale(self) -> int:
        """How many pixels, along each side, a number of a latent stands for."""
        return self.vae.config.scale

    @property
    def latent_channels(self) -> int:
        return self.vae.config.latent_channels

    @property
    def fills_in(self) -> bool:
        """Whether its UNet was trained to inpaint: it reads a mask and the masked picture beside the latent."""
        return self.unet.config.in_channels != self.latent_channels

    @property
    def usual_size(self) -> tuple[int, int]:
        """(width, height) in pixels that it was trained with."""
        side = self.unet.config.sample_size
        if isinstance(side, int) and side < USUAL_LATENT and _version(self.unet.config.written_by) < OLD_VERSION:
            side = USUAL_LATENT
        height, width = for_each(side or USUAL_LATENT, 2)
        return width * self.scale, height * self.scale

    # ---- drawing

    @torch.no_grad()
    def draw(
        self,
        prompt: str | list[str] | None = None,
        *,
        negative_prompt: str | list[str] | None = None,
        image: Any = None,
        mask_image: Any = None,
        latents: Tensor | None = None,
        prompt_embeds: Tensor | None = None,
        negative_prompt_embeds: Tensor | None = None,
        callback: Callable[[int, Tensor, Tensor], None] | None = None,
        on_step: Callable[[DrawingStep], None] | None = None,
        **options: Any,
    ) -> Any:
        """A picture of a text: a Pillow image; of several texts, or with num_images_per_prompt, a list of them.

        negative_prompt   what it should not be
        image             a picture (path, Pillow image, tensor …) to begin from; see strength
        mask_image        what of it is drawn anew: the white
        latents           unit noise to begin with, which decides the size; with image= the noise that is mixed in
        prompt_embeds     the states of texts in place of texts, (texts, tokens, width)
        callback          called after each step: (step, timestep, latents)
        on_step           the same with all there is, the predicted picture too: a DrawingStep

        The other options, such as num_inference_steps, guidance_scale, seed and strength, are those of DrawOptions.
        """
        asked = DrawOptions.read(options)
        guidance = self._guidance(prompt, negative_prompt, prompt_embeds, negative_prompt_embeds, asked)

        def watch(step: DrawingStep) -> None:
            if callback is not None:
                callback(step.index, step.timestep, step.latents)
            if on_step is not None:
                on_step(step)

        drawing = Drawing(self, asked, guidance, image=image, mask_image=mask_image, latents=latents)
        drawn = drawing.run(watch if callback is not None or on_step is not None else None)
        single = asked.output_type == "pil" and not isinstance(prompt, list | tuple) and len(drawn) == 1
        return drawn[0] if single else drawn

    def __call__(self, prompt: str | list[str] | None = None, **options: Any) -> Any:
        return self.draw(prompt, **options)

    def _guidance(
        self,
        prompt: Any,
        negative_prompt: Any,
        prompt_embeds: Tensor | None,
        negative_prompt_embeds: Tensor | None,
        options: DrawOptions,
    ) -> Guidance:
        if prompt is None and prompt_embeds is None:
            raise InputError(say("drawing.no_text"))
        states = self._states("prompt", prompt, prompt_embeds)
        count = len(states)
        without = None
        if options.guidance_scale > 1:
            if negative_prompt_embeds is None:
                negatives = [""] if negative_prompt is None else texts_of("negative_prompt", negative_prompt)
                if len(negatives) not in (1, count):
                    raise InputError(say("drawing.negatives", given=len(negatives), texts=count))
                without = encode_texts(self.text_encoder, self.tokenizer, negatives, states.shape[1])
            else:
                without = self._states("negative_prompt", negative_prompt, negative_prompt_embeds)
            if len(without) not in (1, count):
                raise InputError(say("drawing.negatives", given=len(without), texts=count))
            without = without.expand(count, -1, -1).repeat_interleave(options.num_images_per_prompt, dim=0)
        return Guidance(states.repeat_interleave(options.num_images_per_prompt, dim=0), without, options.guidance_scale)

    def _states(self, name: str, texts: Any, given: Tensor | None) -> Tensor:
        """(texts, tokens, width)"""
        if given is None:
            return encode_texts(self.text_encoder, self.tokenizer, texts_of(name, texts))
        if texts is not None:
            raise InputError(say("drawing.both_texts", name=name))
        width = for_each(self.unet.config.cross_attention_dim, 1)[0]
        if not isinstance(given, Tensor) or given.ndim != 3 or given.shape[-1] != width:
            got = str(tuple(given.shape)) if isinstance(given, Tensor) else type(given).__name__
            raise InputError(say("drawing.states", name=f"{name}_embeds", width=width, got=got))
        return given.to(device=self.unet.device, dtype=self.text_encoder.dtype)

    @torch.no_grad()
    def encode_prompt(self, prompt: str | list[str]) -> Tensor:
        """The states of texts, (texts, tokens, width): what `prompt_embeds` takes."""
        return encode_texts(self.text_encoder, self.tokenizer, texts_of("prompt", prompt))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Pictures of latents as they are drawn: (batch, 3, height, width), from 0 to 1."""
        unscaled = latents.to(self.vae.dtype) / self.vae.config.scaling_factor
        pixels = self.vae.decode(unscaled).sample
        assert pixels is not None
        return (pixels / 2 + 0.5).clamp(0, 1)

    # ---- files

    def save(self, folder: str | os.PathLike[str], overwrite: bool = False, format: str | None = None) -> None:
        """Write a folder that diffusers' StableDiffusionPipeline opens: whole, or not at all."""
        if format not in (None, "diffusers"):
            raise InputError(f'A drawing model is saved as format="diffusers", which is the default, not {format!r}.')
        scheduler = self._scheduler.config
        index = index_of(INPAINT if self.fills_in else TEXT, scheduler.class_name, self.settings)
        save_parts(
            folder,
            self.unet,
            self.vae,
            self.text_encoder,
            self.tokenizer,
            scheduler.to_dict(),
            index,
            overwrite=overwrite,
        )

    def __repr__(self) -> str:
        parts = (self.unet, self.vae, self.text_encoder)
        size = f"{sum(part.num_parameters() for part in parts):,} parameters"
        name = self.scheduler.config.class_name
        return f"<{self.name or 'model'}: latent diffusion, {size}, {self.unet.dtype}, {name}>"


def _version(text: str | None) -> tuple[int, ...]:
    """(0, 6, 0) of "0.6.0.dev0"; a file that does not say it is new."""
    parts = (text or "99").split(".")[:3]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)
