"""A queue: positions, consumers, limits, expiry. No input or output."""
