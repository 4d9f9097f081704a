"""Runs a command and checks that it leaves nothing behind: ``python3 -m tools.leftovers COMMAND ...``.

It checks everything that the command started, even if detached. Processes (senders, Java, Python workers) are
recognised by an environment variable, which all descendants inherit. A new file of shmaccum's in /dev/shm, or a new
listening TCP port, counts unless a process that the command did not start uses it. Things that are about to disappear
get a minute and a half. The exit status is the command's, or 1 if something is left.

Uses only the standard library and /proc.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tools.support.proc import command_of, pids, read

VARIABLE: Final = "SHMACCUM_LEFTOVERS_OF"
PATIENCE_S: Final = 90.0
"""Longer than the minute (``max.block.ms``) for which a driver's watch asks brokers that have gone."""
SHM: Final = Path("/dev/shm")
LISTENING: Final = "0A"


def is_started_by(run: str, pid: int) -> bool:
    """Return whether a process descends from the command; a zombie has no environment any more, and does not count."""
    return f"{VARIABLE}={run}".encode() in read(pid, "environ").split(b"\0")


def shared_files() -> set[str]:
    return {entry for entry in os.listdir(SHM) if "shmaccum" in entry}


def slab_of(file: str) -> str:
    """Return the slab that a file in /dev/shm belongs to: what precedes the first dot behind the prefix."""
    return file.removeprefix("sem.").split(".")[0]


def listening_ports() -> dict[str, str]:
    """Return the addresses that are listened on, as the kernel writes them, with the inodes of their sockets."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING:
                found[f"{table} {fields[1]}"] = fields[9]
    return found


def slabs_in_use(users: list[int]) -> set[str]:
    """Return the slabs of which one of these processes has something mapped."""
    mapped = re.compile(rb"/dev/shm/((?:sem\.)?shmaccum-\S*)")
    return {slab_of(os.fsdecode(file)) for pid in users for file in mapped.findall(read(pid, "maps"))}


def sockets_in_use(users: list[int]) -> set[str]:
    """Return the inodes of the sockets that these processes have open."""
    found = set()
    for pid in users:
        try:
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                if target.startswith("socket:["):
                    found.add(target.removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    return found


def leftovers(run: str, files_before: set[str], ports_before: dict[str, str]) -> list[str]:
    """Return a line for each leftover."""
    # What other programs open or close while we look is not ours: a leftover is there before we look and after.
    files, ports = shared_files() - files_before, listening_ports()
    others = []
    found = []
    looked_at: set[int] = set()
    # A process may fork and go while we look: only when no process is new has the last of such a chain been seen.
    while new := set(pids()) - looked_at:
        for pid in new:
            if is_started_by(run, pid):
                found.append(f"process {pid}: {command_of(pid)[:150]}")
            else:
                others.append(pid)
        looked_at |= new
    files &= shared_files()
    if files:
        of_others = slabs_in_use(others)
        found += (f"file {SHM / file}" for file in sorted(files) if slab_of(file) not in of_others)
    sockets = sockets_in_use(others)
    still = listening_ports()
    ports = {
        address: inode
        for address, inode in ports.items()
        if address not in ports_before and still.get(address) == inode
    }
    if ports:
        found += (f"listening on {address}" for address, inode in ports.items() if inode not in sockets)
    return found


def main() -> int:
    command = sys.argv[1:]
    run = f"{os.getpid()}-{time.monotonic_ns()}"
    files, ports = shared_files(), listening_ports()
    status = subprocess.run(command, env=os.environ | {VARIABLE: run}, check=False).returncode
    deadline = time.monotonic() + PATIENCE_S
    while (found := leftovers(run, files, ports)) and time.monotonic() < deadline:
        time.sleep(0.5)
    for line in found:
        print(f"LEFT BEHIND by {' '.join(command)}: {line}")
    if not found:
        print(f"nothing is left behind by {' '.join(command)}: no process, no file in {SHM}, no listening port")
    return status or (1 if found else 0)


if __name__ == "__main__":
    sys.exit(main())
