"""The producer: what users call, and a record's path from there to the accumulator."""
