"""The engine of training: the loop, optimisers, schedules, checkpoints, several devices, one run from start to end."""
