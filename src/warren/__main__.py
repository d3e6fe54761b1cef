"""`python -m warren` is the `warren` command."""

from warren.node.cli import main

main(prog_name="warren")
