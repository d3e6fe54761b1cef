"""A real broker inside a test: Broker() and pytest fixtures."""
