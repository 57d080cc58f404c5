"""Text before it is spoken: written forms as words, and long or growing text in parts. Knows no model."""
