"""Compiled parts only; see snapshot.pyx."""
