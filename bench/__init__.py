"""Measures Warren against RabbitMQ and the data-plane prototype with the same loads."""
