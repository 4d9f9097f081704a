"""The web servers of examples/: under load a worker is killed, the server is reloaded and ended."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from example_programs import BIN, Example, Shop

Serve = Callable[..., Shop]

ADDRESS = "127.0.0.1:PORT"


@pytest.mark.parametrize(
    "options", [[], ["--preload"], ["--worker-class", "gevent"]], ids=["sync", "preload", "gevent"]
)
def test_gunicorn(serve: Serve, options: list[str]) -> None:
    """The workers load the application, or fork with it; or load it after gevent has patched them."""
    command = ("-m", "gunicorn", "--config", "gunicorn.conf.py", "--bind", ADDRESS, *options, "app")
    serve(sys.executable, *command, cwd="wsgi")


def test_uwsgi(serve: Serve) -> None:
    """A reload runs the program again; that of the package pyuwsgi then needs the path of the environment's Python.

    A worker can answer before its master has noted that it is there, and then misses the master's signals.
    """
    quiet = ("--disable-logging", "--binary-path", sys.executable)
    command = (BIN / "uwsgi", "--ini", "uwsgi.ini", "--http-socket", ADDRESS, *quiet)
    serve(*command, cwd="wsgi", announces="pid: {}")


@pytest.mark.parametrize("options", [[], ["--enable-threads", "--py-call-osafterfork"]], ids=["unseen", "without GIL"])
def test_uwsgi_that_forks_without_all_hooks_is_refused(example: Example, options: list[str]) -> None:
    """Its workers would use the master's entry of the process table, or be stuck where it forks without the GIL."""
    plain = ("--master", "--http-socket", "127.0.0.1:0", "--wsgi-file", "app.py", "--need-app", *options)
    with example.program(BIN / "uwsgi", *plain, cwd="wsgi") as server:
        assert server.wait() != 0
        assert "set py-call-uwsgi-fork-hooks = true and enable-threads = true, or lazy-apps = true" in server.errors()


def test_uvicorn(serve: Serve) -> None:
    """On a busy machine a new worker can take longer than the 5 s for which its supervisor waits by default.

    But as long the supervisor can wait for an answer of a worker that has just been killed, before it starts another.
    """
    options = "--workers 2 --port PORT --log-level warning --timeout-worker-healthcheck 20 app:app"
    serve(sys.executable, "-m", "uvicorn", *options.split(), cwd="asgi")
