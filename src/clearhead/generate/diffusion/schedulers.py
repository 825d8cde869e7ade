"""The schedulers by name: diffusers' classes, and short names to choose another one by."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from clearhead.errors import ConfigError, InputError, did_you_mean
from clearhead.generate.diffusion.ddpm import DDIMScheduler, DDPMScheduler
from clearhead.generate.diffusion.dpm_solver import DPMSolverScheduler
from clearhead.generate.diffusion.euler import EulerAncestralScheduler, EulerScheduler
from clearhead.generate.diffusion.pndm import PNDMScheduler
from clearhead.generate.diffusion.schedule import Scheduler

log = logging.getLogger("clearhead")
CLASSES: dict[str, type[Scheduler]] = {
    cls.config_class.class_name: cls
    for cls in (
        DDPMScheduler,
        DDIMScheduler,
        PNDMScheduler,
        EulerScheduler,
        EulerAncestralScheduler,
        DPMSolverScheduler,
    )
}
# short name -> class, and the settings that the name stands for
NAMES: dict[str, tuple[type[Scheduler], dict[str, Any]]] = {
    "ddpm": (DDPMScheduler, {}),
    "ddim": (DDIMScheduler, {}),
    "pndm": (PNDMScheduler, {}),
    "plms": (PNDMScheduler, {"skip_prk_steps": True}),
    "euler": (EulerScheduler, {}),
    "euler-karras": (EulerScheduler, {"use_karras_sigmas": True}),
    "euler-ancestral": (EulerAncestralScheduler, {}),
    "dpm++": (DPMSolverScheduler, {"algorithm_type": "dpmsolver++"}),
    "dpm++-karras": (DPMSolverScheduler, {"algorithm_type": "dpmsolver++", "use_karras_sigmas": True}),
    "dpm++-sde": (DPMSolverScheduler, {"algorithm_type": "sde-dpmsolver++"}),
}
# what a Stable Diffusion pipeline sets, whatever the file of its scheduler says; diffusers does the same
OF_STABLE_DIFFUSION = {"steps_offset": 1, "clip_sample": False}


def read_scheduler(class_name: str, raw: Mapping[str, Any], of_stable_diffusion: bool = True) -> Scheduler:
    """A scheduler of diffusers' class with the settings of its scheduler_config.json.

    of_stable_diffusion   old files lack two settings, or have them wrong, and pictures come out worse: they are set
    """
    if class_name not in CLASSES:
        raise ConfigError(
            f"Clearhead does not have the scheduler {class_name!r}.{did_you_mean(class_name, CLASSES)} It has: "
            f"{', '.join(CLASSES)}."
        )
    cls = CLASSES[class_name]
    settings = dict(raw)
    if of_stable_diffusion:
        for name, value in OF_STABLE_DIFFUSION.items():
            if cls.config_class.field_of(name) is not None:
                settings[name] = value
    return cls(cls.config_class.from_dict(settings))


def other_scheduler(scheduler: Scheduler, name: str) -> Scheduler:
    """Another scheduler for the same UNet: the trained schedule and all settings that both know are kept, as long as
    they differ from the first one's defaults."""
    if not isinstance(name, str) or name not in {*NAMES, *CLASSES}:
        raise InputError(
            f"There is no scheduler {name!r}.{did_you_mean(str(name), NAMES)} There are: {', '.join(NAMES)}."
        )
    cls, settings = NAMES.get(name) or (CLASSES[name], {})
    old, defaults = scheduler.config.to_dict(), type(scheduler.config)().to_dict()
    kept = {key: value for key, value in old.items() if not key.startswith("_") and defaults.get(key) != value}
    kept = {key: value for key, value in kept.items() if cls.config_class.field_of(key) is not None}
    try:
        return read_scheduler(cls.config_class.class_name, kept | settings)
    except ConfigError as error:
        raise InputError(f"The scheduler {name!r} cannot take over from {scheduler!r}: {error}") from None
