"""The BufferPool: allocates the slab's slots fairly to the processes of a host."""
