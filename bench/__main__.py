"""`make bench`, `python -m bench speech|language`: each prints what it measured."""

import argparse

from bench import language, speech

PARTS = {"speech": speech, "language": language}


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parts = parser.add_subparsers(required=True)
    for name, part in PARTS.items():
        summary = (part.__doc__ or "").splitlines()[0]
        chosen = parts.add_parser(name, help=summary, description=part.__doc__)
        part.add_arguments(chosen)
        chosen.set_defaults(run=part.run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
