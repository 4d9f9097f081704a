"""Small measurements, each of one thing: a case. `tools.benchmark` is the comparison of everything."""
