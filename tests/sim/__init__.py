"""The deterministic simulator: a whole cluster in one thread, on a clock, a network and disks that
obey one seed. `python -m sim --help` from the folder above, or `make sim`.
"""
