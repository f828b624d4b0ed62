"""``python -m mechint`` is the command ``mechint``."""

from mechint.cli import main

if __name__ == "__main__":
    main()
