"""Drawing: a loop of its own beside the one that writes, its schedulers, and guidance by a text."""

from clearhead.generate.diffusion.loop import DrawingStep, Guidance, KeptParts, denoise
from clearhead.generate.diffusion.schedule import Scheduler, SchedulerConfig, SchedulerOutput
from clearhead.generate.diffusion.schedulers import CLASSES, NAMES, other_scheduler, read_scheduler

__all__ = [
    "CLASSES",
    "NAMES",
    "DrawingStep",
    "Guidance",
    "KeptParts",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerOutput",
    "denoise",
    "other_scheduler",
    "read_scheduler",
]
