"""What the nodes of a cluster agree on. The Raft in here does no input or output by itself."""
