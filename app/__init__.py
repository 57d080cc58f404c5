"""The service half of voxserve: FastAPI routes over asynchronous vLLM engines."""
