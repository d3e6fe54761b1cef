"""Sockets: listeners, links, TLS."""
