"""From a recipe to a trained model: its inputs are found and checked, the parts made in order, the model exported."""
