"""The producer: what users call, and the way of a record from there to the accumulator."""
