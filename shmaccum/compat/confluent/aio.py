"""What a program finds that imports confluent-kafka's asyncio client from here: it is not provided."""

from __future__ import annotations

from shmaccum.compat.confluent import NO_AIO

raise ImportError(NO_AIO, name=__name__)
