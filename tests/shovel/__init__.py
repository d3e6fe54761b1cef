"""Tests of shovels."""
