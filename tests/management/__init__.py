"""Tests of the management API; a package, so that its helpers have names of their own."""
