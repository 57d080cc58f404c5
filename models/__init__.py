"""The model half of voxserve: an out-of-tree vLLM plug-in. It never imports `app`."""
