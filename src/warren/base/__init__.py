"""Helpers with no knowledge of AMQP: clocks, names, timers."""
