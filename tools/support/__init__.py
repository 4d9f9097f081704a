"""What several tools share, and tests use, too."""
