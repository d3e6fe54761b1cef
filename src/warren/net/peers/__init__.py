"""The links between the nodes of a cluster: greeting, frames, heartbeats, credit."""
