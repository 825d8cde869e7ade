"""One drawing: texts and pictures become what the loop works on, and its latents become pictures."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.errors import InputError
from clearhead.generate.diffusion import DrawingStep, Guidance, KeptParts, Scheduler, denoise, other_scheduler
from clearhead.generate.diffusion.pndm import PNDMScheduler
from clearhead.messages import say
from clearhead.nn.latent import noise_like
from clearhead.pipeline.draw_options import FROM_PICTURE, WITH_MASK, DrawOptions, check_size
from clearhead.pipeline.picture_tensors import is_latent, to_mask, to_pictures, to_pixels

if TYPE_CHECKING:
    from clearhead.pipeline.diffusion import DiffusionPipeline

log = logging.getLogger("clearhead")


class Drawing:
    """What one call of `draw` needs, made in order: guidance, latents, kept parts; then `run`."""

    def __init__(
        self,
        pipe: DiffusionPipeline,
        options: DrawOptions,
        guidance: Guidance,
        *,
        image: Any = None,
        mask_image: Any = None,
        latents: Tensor | None = None,
    ) -> None:
        self.pipe, self.options, self.guidance = pipe, options, guidance
        self.count = len(guidance.states)  # pictures
        self.dtype, self.device = guidance.states.dtype, pipe.unet.device
        self._check_pictures(image, mask_image)
        self.generators = self._generators()
        self.scheduler = self._scheduler(mask_image is not None)
        self.strength = options.strength or (FROM_PICTURE if mask_image is None else WITH_MASK)
        self.timesteps = self._timesteps(image is not None)
        pixels = None if image is None else self._pixels(image, latents)
        picture: Tensor | None
        if is_latent(image, pipe.latent_channels):
            picture = self._for_each(image.to(device=self.device, dtype=self.dtype))
        else:
            picture = None if pixels is None else self._encoded(pixels)
        self.noise = self._noise(latents, picture)
        self.latents = self._first_latents(picture, mask_image is not None)
        self.beside, self.kept = self._inpainting(pixels, picture, mask_image)

    # ---- what is given

    def _check_pictures(self, image: Any, mask_image: Any) -> None:
        if image is None and mask_image is not None:
            raise InputError(say("drawing.mask_alone"))
        if image is None and self.options.strength is not None:
            raise InputError(say("drawing.strength_alone"))
        if self.pipe.fills_in and mask_image is None:
            raise InputError(say("drawing.needs_mask", channels=self.pipe.unet.config.in_channels))

    def _generators(self) -> list[torch.Generator]:
        """One for each picture: what stands beside it in a batch does not change it. They draw on the CPU, so that a
        seed means the same on every device."""
        seeds = self.options.seeds(self.count // self.options.num_images_per_prompt)
        if seeds is None:
            seeds = torch.randint(2**62, (self.count,)).tolist()
        return [torch.Generator().manual_seed(seed) for seed in seeds]

    def _scheduler(self, fills_in: bool) -> Scheduler:
        scheduler = self.pipe.scheduler
        if self.options.scheduler is not None:
            scheduler = other_scheduler(scheduler, self.options.scheduler)
        scheduler = scheduler.copy()
        if fills_in and isinstance(scheduler, PNDMScheduler):
            scheduler.config.skip_prk_steps = True  # as diffusers' inpainting sets it
        return scheduler

    def _timesteps(self, from_picture: bool) -> Tensor:
        """All steps, or of a drawing from a picture those that are left of them."""
        steps = self.options.num_inference_steps
        self.scheduler.set_timesteps(steps, self.device)
        first = 0
        if from_picture:
            left = min(int(steps * self.strength), steps)
            if left < 1:
                raise InputError(say("drawing.no_steps", strength=self.strength, steps=steps, least=1 / steps))
            first = (steps - left) * self.scheduler.order
        self.scheduler.set_begin_index(first)
        return self.scheduler.timesteps[first:]

    # ---- pictures and noise

    def _size(self) -> tuple[int, int] | None:
        """(width, height) as asked for; None where nothing was."""
        width, height, scale = self.options.width, self.options.height, self.pipe.scale
        if width is None and height is None:
            return None
        usual = self.pipe.usual_size
        width, height = width or usual[0], height or usual[1]
        check_size(width, height, scale)
        return width, height

    def _pixels(self, image: Any, latents: Tensor | None) -> Tensor | None:
        """None where latents were given in place of pixels."""
        if is_latent(image, self.pipe.latent_channels):
            if self.pipe.fills_in:  # it has to be masked as a picture
                raise InputError(say("drawing.tensor", shape=str(tuple(image.shape))))
            return None
        size = self._size()
        if size is None and latents is not None and latents.ndim == 4:  # they decide the size
            size = (latents.shape[-1] * self.pipe.scale, latents.shape[-2] * self.pipe.scale)
        return to_pixels(image, self.pipe.scale, size).to(self.device)

    def _encoded(self, pixels: Tensor) -> Tensor:
        """The latents of pictures: the autoencoder's mean, so that the same picture is always the same latent."""
        latent = self.pipe.vae.encode(pixels.to(self.pipe.vae.dtype)).latent_dist
        assert latent is not None
        return self._for_each((latent.mean * self.pipe.vae.config.scaling_factor).to(self.dtype))

    def _for_each(self, given: Tensor) -> Tensor:
        """One for every picture that is drawn, of one for all, one for each text, or one for each."""
        texts = self.count // self.options.num_images_per_prompt
        if len(given) == self.count:
            return given
        if len(given) not in (1, texts):
            raise InputError(say("drawing.pictures", given=len(given), texts=texts))
        return given.repeat_interleave(self.count // len(given), dim=0)

    def _noise(self, latents: Tensor | None, picture: Tensor | None) -> Tensor:
        channels, scale = self.pipe.latent_channels, self.pipe.scale
        if latents is None:
            if picture is not None:
                like = picture
            else:
                width, height = self._size() or self.pipe.usual_size
                like = torch.empty(self.count, channels, height // scale, width // scale, dtype=self.dtype)
            return noise_like(like.to(self.device), self.generators)
        got = f"{tuple(latents.shape)}" if isinstance(latents, Tensor) else type(latents).__name__
        if not isinstance(latents, Tensor) or latents.ndim != 4 or latents.shape[1] != channels:
            raise InputError(say("drawing.latents", batch=self.count, channels=channels, got=got))
        if len(latents) not in (1, self.count):
            raise InputError(say("drawing.latents", batch=self.count, channels=channels, got=got))
        width, height = latents.shape[-1] * scale, latents.shape[-2] * scale
        if (size := self._size()) is not None and size != (width, height):
            raise InputError(say("drawing.latents_decide", got=got, width=width, height=height))
        if picture is not None and picture.shape[1:] != latents.shape[1:]:
            raise InputError(say("drawing.latents_and_picture", got=got, wanted=tuple(picture.shape)))
        return latents.to(device=self.device, dtype=self.dtype).expand(self.count, -1, -1, -1)

    def _first_latents(self, picture: Tensor | None, masked: bool) -> Tensor:
        """Noise, or a picture with noise in it."""
        if picture is None or (masked and self.strength == 1.0):
            return self.noise * self.scheduler.init_noise_sigma
        return self.scheduler.add_noise(picture, self.noise, self.timesteps[:1].repeat(self.count))

    def _inpainting(
        self, pixels: Tensor | None, picture: Tensor | None, mask_image: Any
    ) -> tuple[Tensor | None, KeptParts | None]:
        """What an inpainting UNet reads beside the latent; for any other, what is put back after each step."""
        if mask_image is None or picture is None:
            return None, None
        height, width = (side * self.pipe.scale for side in picture.shape[-2:])
        pixel_mask = to_mask(mask_image, (width, height)).to(self.device)
        mask = self._for_each(F.interpolate(pixel_mask, size=picture.shape[-2:]).to(self.dtype))
        if not self.pipe.fills_in:
            return None, KeptParts(mask, picture, self.noise)
        assert pixels is not None
        return torch.cat([mask, self._encoded(pixels * (pixel_mask < 0.5))], dim=1), None

    # ---- drawing

    def run(self, on_step: Callable[[DrawingStep], None] | None = None) -> Any:
        latents = denoise(
            self.pipe.unet,
            self.scheduler,
            self.latents,
            self.timesteps,
            self.guidance,
            generators=self.generators,
            eta=self.options.eta,
            beside=self.beside,
            kept=self.kept,
            on_step=on_step,
        )
        self._check_numbers(latents, self.pipe.unet.dtype)
        if self.options.output_type == "latent":
            return latents
        pixels = self.pipe.decode(latents)
        self._check_numbers(pixels, self.pipe.vae.dtype)
        return pixels if self.options.output_type == "pt" else to_pictures(pixels)

    @staticmethod
    def _check_numbers(tensor: Tensor, dtype: torch.dtype) -> None:
        if bool(tensor.isfinite().all()):
            return
        what = "NaN" if bool(tensor.isnan().any()) else "infinity"
        advice = say("drawing.half_advice" if dtype == torch.float16 else "drawing.other_advice")
        raise InputError(say("drawing.not_numbers", what=what, dtype=str(dtype).removeprefix("torch."), advice=advice))
