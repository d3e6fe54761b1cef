"""The whole product on this machine, at work: `warren showcase`, which `make run` runs."""
