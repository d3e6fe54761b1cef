"""Runs the test suites of foreign AMQP clients against a live broker and judges the outcome."""
