"""Builds the wheels of a release: every CPython and platform from one Linux machine, without a container.

* `targets`: the platforms and versions, as data.
* `interpreters`: CPython itself, for its headers and to try the wheels.
* `building`: the sdist, and from it each wheel, by Zig's C compiler.
* `checks`: auditwheel and twine over the files.
* `trial`: each wheel in a new environment, where a record is sent.
"""
