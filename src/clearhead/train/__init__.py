"""Training: objectives, data, the loop, resuming, several devices; all of it said in a recipe."""

from clearhead.train.engine.fit import FitResult, fit
from clearhead.train.recipe import Recipe
from clearhead.train.recipe_files import read_recipe, write_recipe
from clearhead.train.run.evaluate import EvaluationResult, evaluate
from clearhead.train.run.stages import TrainingStage, read_stages, train_stages
from clearhead.train.run.train import TrainingResult, train

__all__ = [
    "EvaluationResult",
    "FitResult",
    "Recipe",
    "TrainingResult",
    "TrainingStage",
    "evaluate",
    "fit",
    "read_recipe",
    "read_stages",
    "train",
    "train_stages",
    "write_recipe",
]
