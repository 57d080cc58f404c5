"""What `voxserve` does besides serving, one command a module. `app.cli` parses and imports them when needed."""
