"""All jobs, in the order in which they are run."""

from __future__ import annotations

from tools.moved_by_one_word import batch_jobs, stream_jobs, refused_jobs  # isort: skip # the order is theirs
from tools.moved_by_one_word.job import JOBS

__all__ = ["JOBS", "batch_jobs", "refused_jobs", "stream_jobs"]
