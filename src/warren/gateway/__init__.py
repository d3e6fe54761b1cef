"""Queues of other nodes: a client's node as their gateway, their own node as their home."""
