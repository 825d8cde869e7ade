"""Training: objectives, data, the loop, resuming, several devices; all of it said in a recipe."""

from clearhead.train.engine.run import Result, train
from clearhead.train.recipe import Recipe, read_recipe, write_recipe

__all__ = ["Recipe", "Result", "read_recipe", "train", "write_recipe"]
