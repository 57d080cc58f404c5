"""Measurements. Every figure is a ratio of two things measured in the same run."""
