"""`warrenctl`: an operator's commands, over a node's control socket or its management API."""
