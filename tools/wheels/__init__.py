"""Builds the wheels of a release: every CPython and platform from one Linux machine, without a container.

* `building`: the targets as data; the sdist, and from it each wheel, by Zig's C compiler; auditwheel and twine.
* `environments`: a wheel installed, for this or another machine or C library, from which `send` sends to Apache Kafka.
* `over`: tests and tools of this source tree over a wheel.
* `fresh_root`: from a bare Debian to an acknowledged record.
"""
