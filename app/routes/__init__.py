"""HTTP routes: thin; what they do is in the pipeline."""
