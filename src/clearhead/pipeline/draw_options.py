"""What can be asked of a drawing beside its text and pictures: the table, and the checks that need no model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from clearhead.errors import InputError
from clearhead.messages import say
from clearhead.schema import Field, check_names, fields_of

FROM_PICTURE, WITH_MASK = 0.8, 1.0  # strength where none is given


def _are_seeds(value: Any) -> bool:
    return all(0 <= seed < 2**63 for seed in (value if isinstance(value, list | tuple) else [value]))


@dataclass(frozen=True, kw_only=True)
class DrawOptions:
    """
    num_inference_steps    how many steps; a scheduler may make some more of them
    guidance_scale         how much the text is exaggerated; 1 and below: the text alone, in half the time
    strength               of a drawing from a picture: how much of it is noise at first. 0.8; with a mask 1
    num_images_per_prompt  the n-th picture of a text draws from seed + n
    seed                   one number, from which every text draws; or one for each text, or for each picture
    width, height          in pixels; by default what the model was trained with, or the picture's own
    output_type            "pil": pictures; "pt": (pictures, 3, height, width) from 0 to 1; "latent"
    eta                    how much noise DDIM draws at every step
    scheduler              the short name of another one, for this drawing
    """

    num_inference_steps: Annotated[int, Field(least=1)] = 50
    guidance_scale: Annotated[float, Field(least=0)] = 7.5
    strength: Annotated[float | None, Field(above=0, most=1)] = None
    num_images_per_prompt: Annotated[int, Field(least=1, most=1000)] = 1
    seed: Annotated[int | list[int] | None, Field(test=_are_seeds)] = None
    width: Annotated[int | None, Field(least=1)] = None
    height: Annotated[int | None, Field(least=1)] = None
    output_type: Literal["pil", "latent", "pt"] = "pil"
    eta: Annotated[float, Field(least=0, most=1)] = 0.0
    scheduler: str | None = None

    def __post_init__(self) -> None:
        known = fields_of(type(self))
        for each in fields(self):
            known[each.name].check(getattr(self, each.name))

    @classmethod
    def read(cls, options: dict[str, Any]) -> DrawOptions:
        check_names(options, fields_of(cls), say("drawing.no_option"))
        return cls(**options)

    def seeds(self, prompts: int) -> list[int] | None:
        """One for each picture; None: whatever comes."""
        copies = self.num_images_per_prompt
        if self.seed is None:
            return None
        given = [self.seed] * prompts if isinstance(self.seed, int) else list(self.seed)
        if len(given) == prompts * copies:
            return given
        if len(given) != prompts:
            raise InputError(say("drawing.seeds", given=len(given), texts=prompts))
        return [seed + n for seed in given for n in range(copies)]


def check_size(width: int, height: int, scale: int) -> None:
    """A latent stands for `scale` × `scale` pixels: a size that is no multiple of it does not fit."""
    if width % scale or height % scale:
        near = {side: _nearest(side, scale) for side in (width, height)}
        raise InputError(
            say(
                "drawing.size",
                width=width,
                height=height,
                scale=scale,
                near=f"{near[width]} × {near[height]}",
            )
        )


def _nearest(side: int, scale: int) -> int:
    return max(scale, round(side / scale) * scale)
