"""Language: MiMoV2 behind vLLM's own OpenAI-compatible serving classes."""
