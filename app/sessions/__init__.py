"""Spoken sessions over a WebSocket: text in as it is written, audio out as it is made."""
