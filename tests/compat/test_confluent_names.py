"""Names that a program of confluent-kafka asks for, and that are not here."""

from __future__ import annotations

import importlib

import pytest

from shmaccum.compat import confluent

ADVICE = r"confluent-kafka's asyncio client is not provided.*shmaccum\.AsyncProducer.*docs/asyncio\.md"


def test_the_asyncio_client_has_a_substitute() -> None:
    for statement in (
        "from shmaccum.compat.confluent.aio import AIOProducer",
        "import shmaccum.compat.confluent.aio",
        "from shmaccum.compat.confluent import aio",
    ):
        with pytest.raises(ImportError, match=ADVICE):
            exec(statement)
    with pytest.raises(AttributeError, match=ADVICE):
        confluent.aio  # noqa: B018
    importlib.import_module("confluent_kafka.aio")
    with pytest.raises(ImportError, match=ADVICE):
        exec("from shmaccum.compat.confluent import aio")
