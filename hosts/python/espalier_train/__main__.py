"""`python -m espalier_train ...` and `espalier ...`: the program itself."""
import os
import sys

from .process import program


def main():
    """Becomes the program."""
    path = program()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
