"""What can be set: the only place that knows a setting's name, type, default, range and documentation.

From the bottom up: `valuetypes` (what text becomes), `validators` (which values are allowed), `configdef` (a
setting, and a validated set of them), `settings` (the producer's), `rules` (what does not go together) and
`producerconfig` (what the rest of the package uses). Imports nothing of the package but its errors.
"""

from __future__ import annotations

from shmaccum.config.producerconfig import ProducerConfig, describe_settings

__all__ = ["ProducerConfig", "describe_settings"]
