"""The BufferPool: the slab's slots, handed out fairly to the processes of a host."""
