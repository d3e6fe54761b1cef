"""Exchanges and bindings: from a message's address to its queues."""
