"""The write-ahead log: what was confirmed is still there. Not yet joined to the engine."""
