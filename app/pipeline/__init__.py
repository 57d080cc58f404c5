"""The data's way: text -> prompt -> engine -> PCM -> container."""
