"""Encodes requests and decodes responses by their schemas (`schema`).

A reader, and a writer, of a struct is a list of steps, made once for each version that is met. Fields of fixed sizes
that follow each other are one step.

Nothing that a broker sends is trusted. Whatever its bytes are, the only error is a NetworkError. Time and memory are in
proportion to their number, since each length is compared with the bytes that are left before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Final

from shmaccum.errors import NetworkError, printable
from shmaccum.kafka.schema import (
    BOOL,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    NEVER,
    STRING,
    STRUCT,
    UUID,
    ApiMessage,
    ApiMessageType,
    Field,
    Kind,
)

# --- frames -------------------------------------------------------------------------------------

_Reader = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value at a position, and the position behind it."""
_Writer = Callable[[bytearray, Any], None]
"""Appends a value."""

_CODES: Final[Mapping[Kind, str]] = {BOOL: "?", INT8: "b", INT16: "h", INT32: "i", INT64: "q"}
"""Kind of a fixed size -> its code in a format of `struct`."""
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhi")
"""API key, version and correlation id of a request."""
_SIZE_SIZE: Final = 4
_UUID_SIZE: Final = 16
_CORRELATION_ID_SIZE: Final = 4
_API_VERSIONS: Final = 18
"""Its responses have the header of version 0: the client does not know yet what the broker supports (KIP-511)."""
_LAST_SHIFT: Final = 28
"""Of the last byte of a varint."""
_NO_TAGS: Final = b"\0"


class _MalformedError(ValueError):
    """The bytes do not fit the schema."""


_MALFORMED: Final = (_MalformedError, IndexError, struct.error, UnicodeDecodeError)
"""How a fault of the bytes shows; the second and the third are their end."""

_codecs: Final[dict[tuple[int, int], tuple[_Reader, _Writer]]] = {}
"""API key and version -> what reads the response, and what writes the request."""


def encode(message: ApiMessage, version: int, correlation_id: int, client_id: str) -> bytes:
    """Return a request's frame, with its size.

    Raises ValueError: it has a field that there is not, or a value that its field cannot have.
    """
    kind = message.type.api
    is_flexible = version >= kind.flexible_since
    out = bytearray(_SIZE_SIZE)
    out += _HEADER.pack(kind.key, version, correlation_id)
    name = client_id.encode()
    out += _INT16.pack(len(name)) + name  # so every version has it
    if is_flexible:
        out += _NO_TAGS
    try:
        _codec(message.type, version)[1](out, message.values)
    except struct.error as error:
        raise ValueError(f"a {kind.name} request has a value out of range: {error}") from error
    out[:_SIZE_SIZE] = _INT32.pack(len(out) - _SIZE_SIZE)
    return bytes(out)


def decode(kind: ApiMessageType, version: int, frame: bytes) -> Any:
    """Return the response in a frame without its size; a struct's fields are attributes, an array is a tuple.

    Raises NetworkError: it is no such response.
    """
    read, _ = _codec(kind, version)
    try:
        at = _CORRELATION_ID_SIZE
        if version >= kind.api.flexible_since and kind.api.key != _API_VERSIONS:
            at = _read_tags(frame, at, {}, {})
        return read(frame, at)[0]
    except _MALFORMED as error:
        what = f"an answer of {len(frame)} bytes is no {kind.api.name} response of version {version}"
        raise NetworkError(printable(f"{what}: {_explained(error)}")) from error


def _explained(error: Exception) -> str:
    if isinstance(error, _MalformedError):
        return str(error)
    return f"a text is not UTF-8: {error}" if isinstance(error, UnicodeDecodeError) else "it ends too early"


def _codec(kind: ApiMessageType, version: int) -> tuple[_Reader, _Writer]:
    key = kind.api.key, version
    if key not in _codecs:
        how = version, version >= kind.api.flexible_since
        _codecs[key] = _struct_reader(kind.response, *how), _struct_writer(kind.request, *how)
    return _codecs[key]


def _exists(field: Field, version: int) -> bool:
    return field.since <= version <= field.until


# --- lengths: null is -1 --------------------------------------------------------------------------------


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while shift <= _LAST_SHIFT:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise _MalformedError("a varint of more than 5 bytes")


def write_varint(out: bytearray, number: int) -> None:
    """Append an unsigned number."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _read_compact_length(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    at += 1
    if number >= 0x80:
        number, at = _read_varint(data, at - 1)
    return number - 1, at


def _number_reader(layout: struct.Struct) -> _Reader:
    return lambda data, at: (layout.unpack_from(data, at)[0], at + layout.size)


def _length_reader(kind: Kind, is_flexible: bool) -> _Reader:
    """Return a reader of the length of a text, of bytes (`BYTES`), or of an array (any other kind)."""
    return _read_compact_length if is_flexible else _number_reader(_INT16 if kind is STRING else _INT32)


def _write_compact_length(out: bytearray, length: int) -> None:
    write_varint(out, length + 1)


def _number_writer(layout: struct.Struct) -> _Writer:
    return lambda out, value: out.extend(layout.pack(value))


def _length_writer(kind: Kind, is_flexible: bool) -> _Writer:
    return _write_compact_length if is_flexible else _number_writer(_INT16 if kind is STRING else _INT32)


# --- reading --------------------------------------------------------------------------------------------


def _struct_reader(fields: Sequence[Field], version: int, is_flexible: bool) -> _Reader:
    absent = {each.name: _absent(each) for each in fields if each.tag is not None or not _exists(each, version)}
    tagged = {
        each.tag: (each.name, _field_reader(each, version, is_flexible))
        for each in fields
        if each.tag is not None and _exists(each, version)
    }
    steps = list(_reading_steps(fields, version, is_flexible))

    def read(data: bytes, at: int) -> tuple[SimpleNamespace, int]:
        found = SimpleNamespace()
        values = found.__dict__
        for name, read_field, names, unpack, size in steps:
            if unpack is None:
                values[name], at = read_field(data, at)
            else:
                values.update(zip(names, unpack(data, at)))  # noqa: B905  # `strict` takes a tenth of the time
                at += size
        if absent:
            values.update(absent)
        if not is_flexible:
            return found, at
        if data[at]:
            return found, _read_tags(data, at, tagged, values)
        return found, at + 1

    return read


def _reading_steps(fields: Sequence[Field], version: int, is_flexible: bool) -> Iterator[tuple[Any, ...]]:
    """Yield a field and its reader; or None twice, fields of fixed sizes, what unpacks them, and their size."""
    plain = [each for each in fields if each.tag is None and _exists(each, version)]
    for is_fixed, group in groupby(plain, lambda each: each.kind in _CODES and not each.is_array):
        if is_fixed:
            together = list(group)
            layout = struct.Struct(">" + "".join(_CODES[each.kind] for each in together))
            yield None, None, tuple(each.name for each in together), layout.unpack_from, layout.size
        else:
            for each in group:
                yield each.name, _field_reader(each, version, is_flexible), None, None, 0


def _absent(field: Field) -> Any:
    if field.kind is not STRUCT or field.is_array:
        return field.default
    return SimpleNamespace(**{each.name: _absent(each) for each in field.fields})


def _read_tags(data: bytes, at: int, known: Mapping[int, tuple[str, _Reader]], values: dict[str, Any]) -> int:
    """Read tagged fields, without those that are not known; return the position behind them."""
    count, at = _read_varint(data, at)
    for _ in range(count):
        tag, at = _read_varint(data, at)
        size, at = _read_varint(data, at)
        end = _end(data, at, size)
        if tag in known:
            name, read = known[tag]
            values[name], behind = read(data, at)
            if behind != end:
                raise _MalformedError(f"tagged field {name} has {behind - at} bytes, not {size}")
        at = end
    return at


def _end(data: bytes, at: int, size: int) -> int:
    """Return where the next ``size`` bytes end."""
    if size > len(data) - at:
        raise _MalformedError(f"{size} bytes are announced, and {len(data) - at} are left")
    return at + size


def _field_reader(field: Field, version: int, is_flexible: bool) -> _Reader:
    if field.is_array:
        return _array_reader(field, version, is_flexible)
    if field.kind in (STRING, BYTES):
        return _bytes_reader(field, version, is_flexible)
    if field.kind is STRUCT:
        return _struct_reader(field.fields, version, is_flexible)
    if field.kind is UUID:
        return _read_uuid
    return _number_reader(struct.Struct(">" + _CODES[field.kind]))


def _element(field: Field) -> Field:
    """Return an element of an array as a field, which cannot be null."""
    return field._replace(is_array=False, nullable_since=NEVER)


def _read_uuid(data: bytes, at: int) -> tuple[int, int]:
    end = _end(data, at, _UUID_SIZE)
    return int.from_bytes(data[at:end]), end


def _bytes_reader(field: Field, version: int, is_flexible: bool) -> _Reader:
    read_length = _length_reader(field.kind, is_flexible)
    is_text = field.kind is STRING

    def read(data: bytes, at: int) -> tuple[str | bytes | None, int]:
        length, at = read_length(data, at)
        if length < 0:
            _check_null(field, version, length)
            return None, at
        end = _end(data, at, length)
        return data[at:end].decode() if is_text else data[at:end], end

    return read


def _check_null(field: Field, version: int, length: int) -> None:
    if length != -1 or version < field.nullable_since:
        raise _MalformedError(f"{field.name} is null" if length == -1 else f"{field.name} has length {length}")


def _array_reader(field: Field, version: int, is_flexible: bool) -> _Reader:
    read_length = _length_reader(STRUCT, is_flexible)
    read_element = _field_reader(_element(field), version, is_flexible)
    least = _least_size(field, version, is_flexible)
    code = _CODES.get(field.kind)

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        length, at = read_length(data, at)
        if length < 0:
            _check_null(field, version, length)
            return None, at
        end = _end(data, at, length * least)
        if code is not None:  # three arrays of each partition in metadata: each in one step
            return struct.unpack_from(f">{length}{code}", data, at), end
        found = []
        for _ in range(length):
            element, at = read_element(data, at)
            found.append(element)
        return tuple(found), at

    return read


def _least_size(field: Field, version: int, is_flexible: bool) -> int:
    """Return the fewest bytes of a value, or of an element of an array."""
    if field.kind in _CODES:
        return struct.calcsize(">" + _CODES[field.kind])
    if field.kind is UUID:
        return _UUID_SIZE
    if field.kind is not STRUCT:
        return 1 if is_flexible else 2 if field.kind is STRING else 4
    there = [each for each in field.fields if each.tag is None and _exists(each, version)]
    lengths = 1 if is_flexible else 4
    return is_flexible + sum(lengths if each.is_array else _least_size(each, version, is_flexible) for each in there)


# --- writing --------------------------------------------------------------------------------------------


def _struct_writer(fields: Sequence[Field], version: int, is_flexible: bool) -> _Writer:
    names = {each.name for each in fields}
    there = [each for each in fields if _exists(each, version)]
    writers = [(each, _field_writer(each, version, is_flexible)) for each in there]
    plain = [(each.name, each.default, write) for each, write in writers if each.tag is None]
    tagged = sorted((each.tag, each.name, each.default, write) for each, write in writers if each.tag is not None)

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        if not values.keys() <= names:
            raise ValueError(f"there is no field {', '.join(sorted(values.keys() - names))}")
        for name, default, write_field in plain:
            write_field(out, values.get(name, default))
        if is_flexible:
            given = [each for each in tagged if values.get(each[1], each[2]) != each[2]]
            write_varint(out, len(given))
            for tag, name, _, write_field in given:
                content = bytearray()
                write_field(content, values[name])
                write_varint(out, tag)
                write_varint(out, len(content))
                out += content

    return write


def _field_writer(field: Field, version: int, is_flexible: bool) -> _Writer:
    if field.is_array:
        return _sequence_writer(field, version, is_flexible, _field_writer(_element(field), version, is_flexible))
    if field.kind in (STRING, BYTES):
        return _sequence_writer(field, version, is_flexible, None)
    if field.kind is STRUCT:
        return _struct_writer(field.fields, version, is_flexible)
    if field.kind is UUID:
        return lambda out, value: out.extend(value.to_bytes(_UUID_SIZE))
    return _number_writer(struct.Struct(">" + _CODES[field.kind]))


def _sequence_writer(field: Field, version: int, is_flexible: bool, write_element: _Writer | None) -> _Writer:
    """Return a writer of an array; without ``write_element`` of a text, or of bytes."""
    write_length = _length_writer(STRUCT if field.is_array else field.kind, is_flexible)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if version < field.nullable_since:
                raise ValueError(f"{field.name} cannot be null in version {version}")
            write_length(out, -1)
            return
        data = value.encode() if isinstance(value, str) else value
        write_length(out, len(data))
        if write_element is None:
            out += data
        else:
            for each in data:
                write_element(out, each)

    return write
