"""The management HTTP API and the metrics: what operators and their tools see of a broker."""
