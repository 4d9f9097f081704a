"""The core is an extension, which only the compiled form has."""

import shmaccum

if not shmaccum.compiled:
    collect_ignore_glob = ["test_*.py"]
