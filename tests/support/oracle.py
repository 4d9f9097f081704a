"""The check of a slab at rest, under the name that the tests of the core import it by."""

from tools.support.oracle import violations as violations
