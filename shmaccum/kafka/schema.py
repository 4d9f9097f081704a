"""What the schemas of Kafka's messages are made of. Those that we use are in `messages`; `codec` encodes by them.

The terms are those of Kafka's message definitions (KIP-482). A field exists in some versions of its message, and has
its default in the others. A flexible version has compact lengths, and tagged fields, which a reader can skip.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, NamedTuple


class Kind(Enum):
    """What a field holds."""

    BOOL = auto()
    INT8 = auto()
    INT16 = auto()
    INT32 = auto()
    INT64 = auto()
    UUID = auto()
    """A number of 128 bits; 0 if there is none."""
    STRING = auto()
    BYTES = auto()
    """Bytes, or records: their encodings are the same."""
    STRUCT = auto()


BOOL, INT8, INT16, INT32, INT64, UUID, STRING, BYTES, STRUCT = Kind

NEVER: Final = 0x7FFF
"""After every version."""


class Field(NamedTuple):
    """A field of a message, or of a struct in it."""

    name: str
    """Kafka's name for it, in snake case."""
    kind: Kind
    """What it holds, or what each element of it holds."""
    default: Any
    """Its value in the versions without it, and in a request that does not give it."""
    is_array: bool = False
    since: int = 0
    """The first version with it."""
    until: int = NEVER
    """The last version with it."""
    nullable_since: int = NEVER
    """The first version in which it can be null."""
    tag: int | None = None
    """Its number, if it is a tagged field."""
    fields: tuple[Field, ...] = ()
    """Those of the struct."""


def nested(name: str, *fields: Field, **versions: int) -> Field:
    """Return a field that is a struct."""
    return Field(name, STRUCT, {}, False, fields=fields, **versions)


def array(name: str, *fields: Field, default: tuple[()] | None = (), **versions: int) -> Field:
    """Return a field that is an array of structs."""
    return Field(name, STRUCT, default, True, fields=fields, **versions)


class Api(NamedTuple):
    """A kind of request, and the versions of it that we use."""

    name: str
    key: int
    oldest: int
    newest: int
    flexible_since: int
    """The first flexible version."""


class ApiMessageType(NamedTuple):
    """A request and its response."""

    api: Api
    request: tuple[Field, ...]
    response: tuple[Field, ...]

    def of(self, **values: Any) -> ApiMessage:
        """Return a request with these fields. Structs in it are dicts; what is not given has its default."""
        return ApiMessage(self, values)


class ApiMessage(NamedTuple):
    """A request to encode, in whatever version its broker supports."""

    type: ApiMessageType
    values: dict[str, Any]
