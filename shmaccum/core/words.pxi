"""The slab's words for plain Python code, on machines that reorder loads and stores."""


def memory_fence():
    """Make the stores before it visible before the loads behind it: a full memory barrier."""
    fence()


cdef class OrderedWords:
    """A memoryview of words, each access of which stands between two full barriers.

    So an access is ordered with all others of its thread, and barriers of all processes have one order. A slice is a
    memoryview as it is: its reads come after the barrier of the slicing, and before that of the next access.

    Args:
        view: of the memory, by words.
    """

    cdef object _view

    def __cinit__(self, view: memoryview):
        self._view = view

    def __getitem__(self, key):
        fence()
        value = self._view[key]
        fence()
        return value

    def __setitem__(self, key, value):
        fence()
        self._view[key] = value
        fence()

    def __len__(self):
        return len(self._view)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyObject_GetBuffer(self._view, buffer, flags)

    def cast(self, kind):
        """Return the same memory as other items, as `memoryview.cast` does."""
        return self._view.cast(kind)

    def toreadonly(self):
        """Return the same words, which cannot be stored to, as `memoryview.toreadonly` does."""
        return OrderedWords(self._view.toreadonly())

    def release(self):
        """Release the memory, as `memoryview.release` does."""
        self._view.release()
