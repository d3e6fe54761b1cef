"""Composition: builds a node from its configuration, and the warren command."""
