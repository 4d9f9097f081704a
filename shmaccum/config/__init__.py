"""The settings: names, types, defaults, ranges and documentation, in one place.

From the bottom up: `valuetypes` (parse text, check values), `configdef` (a setting, and a validated set of them),
`settings` (the producer's), `rules` (contradictions) and `producerconfig` (what the rest of the package uses).
"""

from __future__ import annotations

from shmaccum.config.producerconfig import ProducerConfig

__all__ = ["ProducerConfig"]
