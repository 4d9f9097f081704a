"""Generates shmaccum/kafka/messages.py from Kafka's message definitions, which are in its client's jar.

``python -m tools.generate_protocol`` writes it; with ``--check`` it writes nothing, shows how the file differs from
what it would write, and exits 1 if it does. A new message, or another range of versions, is one line in messages.toml.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from shmaccum.kafka.schema import NEVER
from tools.kafka.jars import VERSION, jar_directory
from tools.support.generating import write_or_check

MODULE: Final = Path(__file__).resolve().parents[1] / "shmaccum" / "kafka" / "messages.py"

MESSAGES: Final[Mapping[str, tuple[int, int]]] = tomllib.loads(Path(__file__).with_name("messages.toml").read_text())
"""Request -> the oldest and the newest version that we use."""

_HEAD: Final = f'''\
"""The messages of Kafka's protocol that we use, in the versions that we use.

Generated from the message definitions of Apache Kafka {VERSION} by tools/generate_protocol.py. Do not edit.
"""

from __future__ import annotations

from typing import Final

from shmaccum.kafka.schema import (
    BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, UUID, Api, ApiMessageType, Field, array, nested,
)
'''
_KINDS: Final = {"records": "BYTES"} | {
    name: name.upper() for name in ("bool", "int8", "int16", "int32", "int64", "uuid", "string", "bytes")
}
"""Kafka's name of a type -> ours. A float, or an unsigned number, is in none of our messages."""
_DEFAULTS: Final = {"BOOL": "False", "STRING": '""', "BYTES": 'b""'}

Schema = Mapping[str, Any]


def generate(jar: Path) -> str:
    """Return the text of the module, given the jar of Kafka's clients."""
    lines = [_HEAD]
    with zipfile.ZipFile(jar) as definitions:
        for name, (oldest, newest) in MESSAGES.items():
            bodies = {what.lower(): _read(definitions, name + what) for what in ("Request", "Response")}
            request = bodies["request"]
            first, last = _versions(request["validVersions"])
            if oldest < first or newest > last:
                raise ValueError(f"{name} has the versions {first} to {last}, not {oldest} to {newest}")
            flexible = _versions(request["flexibleVersions"])[0]
            api = f'"{name}", key={request["apiKey"]}, oldest={oldest}, newest={newest}, flexible_since={flexible}'
            parts = [f"{what}=({_fields(each, oldest, newest, {})},)" for what, each in bodies.items()]
            lines.append(f"{_constant(name)}: Final = ApiMessageType(Api({api}), {', '.join(parts)})")
    options = "--config", "format.skip-magic-trailing-comma = true", "--stdin-filename", str(MODULE)
    layout = (sys.executable, "-m", "ruff", "format", *options, "-")
    return subprocess.run(layout, input="\n".join(lines), capture_output=True, text=True, check=True).stdout


def _read(definitions: zipfile.ZipFile, name: str) -> Schema:
    """Return a definition: JSON with comments, each on a line of its own."""
    text = definitions.read(f"common/message/{name}.json").decode()
    schema: Schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return schema


def _constant(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _snake(name: str) -> str:
    """Return a name in snake case: ``ThrottleTimeMs``, ``ISR``, ``V3AndBelowTopics``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _versions(text: str) -> tuple[int, int]:
    """Return the first and the last version of a range: ``3``, ``0-12``, ``9+``, ``none``."""
    if text == "none":
        return NEVER, NEVER
    first, sign, last = text.partition("-")
    if first.endswith("+"):
        return int(first[:-1]), NEVER
    return int(first), int(last) if sign else int(first)


def _fields(schema: Schema, oldest: int, newest: int, structs: Mapping[str, Schema]) -> str:
    """Return the fields of a message or a struct in versions that we use, given the common structs of the message."""
    structs = {**structs, **{each["name"]: each for each in schema.get("commonStructs", ())}}
    found = []
    for field in schema["fields"]:
        since, until = _versions(field["versions"])
        if since <= newest and until >= oldest:
            found.append(_field(field, since, until, oldest, newest, structs))
    return ", ".join(found)


def _field(field: Schema, since: int, until: int, oldest: int, newest: int, structs: Mapping[str, Schema]) -> str:
    is_array = field["type"].startswith("[]")
    type_ = field["type"].removeprefix("[]")
    kind = _KINDS.get(type_, "STRUCT")
    default = _default(field.get("default"), kind, is_array)
    arguments = [f'"{_snake(field["name"])}"']
    if kind == "STRUCT":
        struct = field if "fields" in field else structs[type_]
        arguments.append(_fields(struct, max(since, oldest), newest, structs))
        if default == "None":
            arguments.append("default=None")
    else:
        arguments += [kind, default] + ["is_array=True"] * is_array
    if since > oldest:
        arguments.append(f"since={since}")
    if until < newest:
        arguments.append(f"until={until}")
    nullable = _versions(field.get("nullableVersions", "none"))[0]
    if kind == "STRUCT" and not is_array and nullable <= newest:
        raise ValueError(f"{field['name']} is a struct that can be null, which the codec does not have")
    if nullable <= newest:
        arguments.append(f"nullable_since={nullable if nullable > oldest else 0}")
    if "tag" in field:
        if _versions(field["taggedVersions"]) != _versions(field["versions"]):
            raise ValueError(f"{field['name']} is a tagged field in some of its versions only")
        arguments.append(f"tag={field['tag']}")
    function = "Field" if kind != "STRUCT" else "array" if is_array else "nested"
    return f"{function}({', '.join(arguments)})"


def _default(given: object, kind: str, is_array: bool) -> str:
    """Return a field's default, as Python writes it."""
    if given == "null":
        return "None"
    if is_array:
        return "()"
    if given in (None, ""):
        return _DEFAULTS.get(kind, "0")
    if kind == "BOOL":
        return str(str(given) == "true")
    return json.dumps(given) if kind == "STRING" else str(int(str(given), 0))


def jar_path() -> Path:
    return jar_directory() / f"kafka-clients-{VERSION}.jar"


def main(arguments: Sequence[str] | None = None) -> int:
    files = {MODULE: lambda: generate(jar_path())}
    return write_or_check("generate_protocol", "Write the module of Kafka's messages.", files, arguments)


if __name__ == "__main__":
    sys.exit(main())
