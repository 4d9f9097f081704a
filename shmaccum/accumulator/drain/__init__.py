"""The sender's half: finds ready batches, drains and numbers them, completes, expires and reenqueues them."""
