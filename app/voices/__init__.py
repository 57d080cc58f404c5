"""Voices: the audio that speech imitates or continues."""
