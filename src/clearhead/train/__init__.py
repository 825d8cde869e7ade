"""Training: objectives, data, the loop, resuming, several devices; all of it said in a recipe."""

from clearhead.train.recipe import Recipe, read_recipe, write_recipe
from clearhead.train.run.train import TrainingResult, train

__all__ = ["Recipe", "TrainingResult", "read_recipe", "train", "write_recipe"]
