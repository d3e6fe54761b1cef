"""Shovels: they move messages from one broker to another, or within one, and lose none."""
