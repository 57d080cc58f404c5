"""The engine side of speech: worker, runner, per-request state, and the audio channel to the API process."""
