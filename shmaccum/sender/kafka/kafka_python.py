"""What we use of kafka-python: requests, responses, and their codec. Else only `shmaccum.compat` imports it.

These parts do no I/O and are generated from Kafka's own definitions. Its connections are not used: they run in the
background, and their parser logs what is sent at level DEBUG, passwords included. They are not imported either: that
takes longer than the rest of a process on Spark's driver that plans or commits a batch (`_delay`).
"""

from __future__ import annotations

import importlib.util
import io
import re
import struct
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from shmaccum.errors import ApiVersionError, NetworkError, printable
from shmaccum.shm import native


def _delay(package: str) -> None:
    """Import a package without its ``__init__``, which runs when one of the names that it defines is first needed.

    The ``__init__`` modules of kafka-python import its clients, for every program that imports any part of it.
    """
    spec = None if package in sys.modules else importlib.util.find_spec(package)
    if spec is None:
        return
    module = sys.modules[package] = importlib.util.module_from_spec(spec)
    parent, _, name = package.rpartition(".")
    if parent:
        setattr(sys.modules[parent], name, module)
    module.__dict__["__getattr__"] = _Init(module, spec)


class _Init:
    """The ``__init__`` of a package, which has not run yet; as ``__getattr__`` of the package, it runs it.

    Args:
        module: the package.
        spec: where its ``__init__`` is.
    """

    def __init__(self, module: ModuleType, spec: ModuleSpec) -> None:
        self._module = module
        self._spec = spec
        self._lock = native.RLock()
        self._runs = False

    def __call__(self, name: str) -> Any:
        names = self._module.__dict__
        with self._lock:  # other threads wait here until it has run
            if not self._runs and names.get("__getattr__") is self and self._spec.loader is not None:
                self._runs = True
                self._spec.loader.exec_module(self._module)
                del names["__getattr__"]
        if name not in names:
            raise AttributeError(f"module {self._module.__name__!r} has no attribute {name!r}")
        return names[name]


try:
    for _package in ("kafka", "kafka.protocol.admin", "kafka.protocol.consumer"):
        _delay(_package)
    from kafka.protocol.admin.configs import DescribeConfigsRequest as DescribeConfigsRequest
    from kafka.protocol.admin.topics import CreateTopicsRequest as CreateTopicsRequest
    from kafka.protocol.admin.transactions import DescribeTransactionsRequest as DescribeTransactionsRequest
    from kafka.protocol.admin.transactions import ListTransactionsRequest as ListTransactionsRequest
    from kafka.protocol.consumer.fetch import FetchRequest as FetchRequest
    from kafka.protocol.consumer.offsets import ListOffsetsRequest as ListOffsetsRequest
    from kafka.protocol.metadata import ApiVersionsRequest as ApiVersionsRequest
    from kafka.protocol.metadata import FindCoordinatorRequest as FindCoordinatorRequest
    from kafka.protocol.metadata import MetadataRequest as MetadataRequest
    from kafka.protocol.producer import AddOffsetsToTxnRequest as AddOffsetsToTxnRequest
    from kafka.protocol.producer import AddPartitionsToTxnRequest as AddPartitionsToTxnRequest
    from kafka.protocol.producer import EndTxnRequest as EndTxnRequest
    from kafka.protocol.producer import InitProducerIdRequest as InitProducerIdRequest
    from kafka.protocol.producer import ProduceRequest as ProduceRequest
    from kafka.protocol.producer import ProduceResponse as ProduceResponse
    from kafka.protocol.producer import TxnOffsetCommitRequest as TxnOffsetCommitRequest
    from kafka.protocol.sasl import SaslAuthenticateRequest as SaslAuthenticateRequest
    from kafka.protocol.sasl import SaslHandshakeRequest as SaslHandshakeRequest
    from kafka.record.default_records import DefaultRecordBatchBuilder as DefaultRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords as MemoryRecords
except ImportError as error:
    raise ApiVersionError(
        f"transport kafka needs kafka-python 3.0: pip install 'kafka-python>=3.0,<3.1' ({error})"
    ) from error

MISUNDERSTANDINGS: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    struct.error,
)
"""Errors of decoding a malformed answer: the library accepts a null for any list or text, and checks by assertions."""

SHORT_TEXT: Final = 1024
"""Most consecutive bytes beyond ASCII in answers that hold only names."""
LONG_TEXT: Final = 40_960
"""The same in answers with messages: more than Kafka's longest text, of 32,767 bytes."""


def encode(request: Any, api_version: int, correlation_id: int, client_id: str) -> bytes:
    """Return a request's frame, with its size.

    Args:
        request: an object of one of the library's request classes.
        api_version: version to encode it in.
        correlation_id: the response repeats it.
        client_id: our name.
    """
    request.API_VERSION = api_version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(framed=True, header=True))


def decode(response: Any, frame: bytes, longest_text: int = SHORT_TEXT) -> Any:
    """Decode the response in a frame.

    Args:
        response: the library's class for it, of the right version: ``request.header.get_response_class()``.
        frame: the frame, without its size.
        longest_text: most consecutive bytes beyond ASCII. Where the library expects a length, it reads them as one
            varint, in time that grows with their square.

    Raises:
        NetworkError: it is no such response.
    """
    if re.search(rb"[\x80-\xff]{%d}" % longest_text, frame):
        raise NetworkError(
            f"an answer of {len(frame)} bytes is no {response.__name__}: {longest_text} bytes in a row are beyond ASCII"
        )
    buffer = io.BytesIO(frame)
    with understanding(f"an answer of {len(frame)} bytes is no {response.__name__}"):
        response.parse_header(buffer)
        return response.decode(buffer)


class understanding:  # lower case, as it reads within a `with` statement
    """Turn decoding errors of a block into NetworkError: a malformed answer must not end the sender.

    Args:
        otherwise: the error's message.

    Raises:
        NetworkError: the answer cannot be decoded.
    """

    __slots__ = ("_otherwise",)

    def __init__(self, otherwise: str) -> None:
        self._otherwise = otherwise

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MISUNDERSTANDINGS):
            raise misunderstood(self._otherwise, error) from error


def misunderstood(what: str, error: BaseException) -> NetworkError:
    """Return the error for an answer that cannot be decoded."""
    return NetworkError(printable(f"{what} ({type(error).__name__}: {error})"))
