"""Producers with a real sender, whose slabs are looked at."""

from slab_settings import settings as settings
