"""A key distribution center of MIT Kerberos on loopback, for one realm in one directory (Debian's krb5-kdc)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tools.kafka import keeper
from tools.kafka.ports import free_port
from tools.kafka.running import Running

REALM: Final = "SHMACCUM.TEST"
_PATIENCE_S: Final = 60.0


def missing_kerberos() -> str:
    """Return what is missing for tests with Kerberos, and the command that mends it; empty if all is there."""
    missing = [
        name for name in ("krb5kdc", "kadmin.local", "kdb5_util", "kinit") if shutil.which(name, path=_PATH) is None
    ]
    if missing or find_spec("gssapi") is None:
        return f"no Kerberos ({', '.join(missing) or 'the package gssapi'} is missing); install it with `make kerberos`"
    return ""


_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # Debian's place for what is a server's


class Kdc:
    """A realm; ``with Kdc(directory) as kdc`` makes it and starts its center.

    Attributes:
        directory: where all of it is.
        config: a ``krb5.conf`` for clients and servers, Java's too.
        port: that the center listens on.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "krb5.conf"
        self.port = free_port()
        self._keeper: subprocess.Popen[str] | None = None
        self._running: Running | None = None
        self.config.write_text(f"""
[libdefaults]
  default_realm = {REALM}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {REALM} = {{
    kdc = 127.0.0.1:{self.port}
  }}
""")
        (directory / "kdc.conf").write_text(f"""
[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
  {REALM} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
    acl_file = {directory}/acl
    supported_enctypes = aes256-cts:normal
  }}
[logging]
  kdc = FILE:{directory}/kdc.log
""")
        self._run("kdb5_util", "create", "-r", REALM, "-s", "-P", "master")

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which programs find the realm; the credential cache is an empty one of its own."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.directory / 'ccache'}",
            "KRB5RCACHETYPE": "none",
        }

    def add(self, principal: str, *options: str) -> Path:
        """Add a principal, if it is new, with options of kadmin's ``addprinc``; return a keytab with its keys."""
        keytab = self.directory / f"{principal.replace('/', '-')}.keytab"
        if keytab.exists():
            return keytab
        self._run("kadmin.local", "-r", REALM, "addprinc", *options, "-randkey", principal)
        self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(keytab), principal)
        return keytab

    def new_key(self, principal: str) -> None:
        self._run("kadmin.local", "-r", REALM, "cpw", "-randkey", principal)

    def log_in(self, principal: str, keytab: Path) -> None:
        """Fill the credential cache that the environment names, as a user does (kinit)."""
        environment = self.environment | {"KRB5CCNAME": os.environ["KRB5CCNAME"]}
        self._run("kinit", "-k", "-t", str(keytab), principal, environment=environment)

    def issued(self, kind: str, client: str) -> int:
        """Return how many tickets a client has got by requests of a kind, ``AS_REQ`` or ``TGS_REQ``."""
        lines = (self.directory / "kdc.log").read_text().splitlines()
        return sum(f" {kind} " in line and ": ISSUE: " in line and f" {client}@{REALM} for " in line for line in lines)

    def start(self) -> None:
        """Start the center, and wait until it listens."""
        with open(self.directory / "output", "a") as output:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(os.getpid()), "krb5kdc", "-n", "-r", REALM],
                env=os.environ | self.environment | {"PATH": _PATH},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
                text=True,
            )
        assert self._keeper.stdout is not None
        self._running = Running.process(int(self._keeper.stdout.readline()))
        deadline = time.monotonic() + _PATIENCE_S
        while not self._listens():
            assert self._running.is_alive(), (self.directory / "output").read_text()
            assert time.monotonic() < deadline, "the center does not listen"
            time.sleep(0.01)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Kill the center; who asks it is refused the connection."""
        if self._running is not None and self._keeper is not None:
            self._running.kill()
            self._keeper.wait()
            assert self._keeper.stdout is not None
            self._keeper.stdout.close()
            self._keeper = self._running = None

    def __enter__(self) -> Kdc:
        self.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.stop()

    def _run(self, *command: str, environment: dict[str, str] | None = None) -> None:
        environment = os.environ | (environment or self.environment) | {"PATH": _PATH}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
