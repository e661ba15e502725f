"""`python -m dimoo` is the `dimoo` command."""

from dimoo.cli import main

if __name__ == "__main__":
    main()
