"""Raft without input or output: see `raft.Raft`."""
