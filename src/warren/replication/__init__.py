"""Mirrored queues: the fenced ring. Sans-IO; docs/internals/mirrors.md has the protocol."""
