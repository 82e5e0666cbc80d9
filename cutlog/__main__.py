"""`python -m cutlog`: the command line of Cutlog."""

from cutlog.cli import main

if __name__ == "__main__":
    main()
