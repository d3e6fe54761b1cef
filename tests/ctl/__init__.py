"""Tests of warrenctl; a package, so that its fixtures have a name of their own."""
