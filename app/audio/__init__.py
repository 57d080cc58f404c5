"""Audio on its way out: tempo, rate, and the formats in which it travels."""
