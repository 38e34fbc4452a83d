"""`python -m espalier_train ...` and `espalier ...`: the program itself."""
import os
import sys

from .process import program


def main():
    """Becomes the program, which names itself in its messages as it was started."""
    path = program()
    started = sys.argv[0]
    name = "espalier" if os.path.basename(started) == "espalier" else path
    os.execv(path, [name, *sys.argv[1:]])


if __name__ == "__main__":
    main()
