"""`python -m clearhead` is the command line, and so is the script `clearhead`."""

import sys


def main() -> None:
    try:
        from clearhead.cli import main  # takes a moment, in which somebody may think better of it

        main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
