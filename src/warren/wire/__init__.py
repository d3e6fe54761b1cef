"""AMQP 0-9-1 bytes: frames, methods, field tables, content headers."""
