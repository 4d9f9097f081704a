"""Scripts around the package: generated documents, set-up, checks."""
