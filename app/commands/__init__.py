"""What `voxserve` does besides serving, one command a module, which `app.cli` imports when needed."""
