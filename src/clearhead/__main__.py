"""`python -m clearhead` is the command line."""

from clearhead.cli import main

main()
