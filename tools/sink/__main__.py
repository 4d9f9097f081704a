"""The sink as a program; see `tools.sink`."""

from __future__ import annotations

import sys

import tools.sink
from tools.sink.server import Sink
from tools.support.arguments import command_line


def main() -> None:
    """Print the address, and serve until standard input ends."""
    parser = command_line("sink", tools.sink.__doc__)
    parser.add_argument("--partitions", type=int, default=4, help="of every topic [%(default)s]")
    sink = Sink(parser.parse_args().partitions)
    print(sink.servers, flush=True)
    sink.serve_until(sys.stdin)


if __name__ == "__main__":
    main()
