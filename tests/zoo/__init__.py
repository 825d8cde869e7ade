"""Tests of the shipped models, and of Clearhead without them."""
