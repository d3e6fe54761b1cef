"""Configuration: rabbitmq.conf keys, environment, defaults."""
