"""Compiled parts only; see paging.pyx."""
