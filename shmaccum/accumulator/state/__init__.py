"""What both halves read and write in the slab: batches, partition queues, completion rings."""
