"""Logging set-up and counters."""
