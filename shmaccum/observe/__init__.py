"""A slab as one report, and what is made of it: the verdict, what bounds it, and metrics for monitoring."""
