"""A mapped slab, and numpy arrays over it for code that only reads.

A `Segment` owns the mapping. Each array keeps its segment alive, and the memory is unmapped with the last of them, so
an array that outlives everything else still reads mapped memory. Arrays are read-only.

The dtypes come from the structs of `layout.pxi`, and so do the numbers of words for Python code that reads without
numpy, or writes: `Super`, `Process`, `Slot` and their like. A word's *index* in the segment (byte offset / 8) is that
of its entry, which the `Geometry` gives, plus its number.
"""

cdef extern from "<sys/mman.h>" nogil:
    void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset)
    int munmap(void *address, size_t length)
    void *mremap(void *address, size_t length, size_t new_length, int flags, ...)
    void *MAP_FAILED
    int MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE, MREMAP_MAYMOVE, MREMAP_FIXED
    int PROT_READ
    int PROT_WRITE


cdef extern from "<sys/stat.h>" nogil:
    cdef struct stat "stat":
        off_t st_size
    int fstat(int descriptor, stat *result)


cdef extern from "<unistd.h>" nogil:
    long syscall(long number, ...)


cdef extern from "<sys/syscall.h>" nogil:
    long SYS_memfd_create


def memory_file(bytes name not None):
    """Return the descriptor of an unnamed file in memory, which a program started here does not inherit.

    CPython has ``os.memfd_create`` only if it was built for glibc 2.27 or later, and conda's was not.

    Args:
        name: for ``/proc/self/fd``.

    Raises:
        OSError: it cannot be made.
    """
    cdef int descriptor = <int>syscall(SYS_memfd_create, <const char *>name, <unsigned int>1)  # MFD_CLOEXEC
    if descriptor < 0:
        PyErr_SetFromErrno(OSError)
    return descriptor


cdef HistogramEntry _blank
"""Zeros, as many as the largest entry of a table has. Cython makes a dict of a struct: the names of its words."""

cdef const void *_empty = &_blank


cdef object _words(str name, dict entry, uint64_t size):
    """Return a class with the numbers of an entry's words, and its `length` in words, given an empty entry."""
    number = 0
    numbers = {"__module__": "shmaccum._core", "length": size // WORD}
    for word, value in entry.items():
        if not word.startswith("unused"):
            numbers[word.upper()] = number
        number += len(value) if isinstance(value, list) else 1
    return type(name, (), numbers)


Super = _words("Super", (<const Superblock *>_empty)[0], sizeof(Superblock))
Lock = _words("Lock", (<const LockLine *>_empty)[0], sizeof(LockLine))
Process = _words("Process", (<const ProcessEntry *>_empty)[0], sizeof(ProcessEntry))
Topic = _words("Topic", (<const TopicEntry *>_empty)[0], sizeof(TopicEntry))
Partition = _words("Partition", (<const PartitionEntry *>_empty)[0], sizeof(PartitionEntry))
Lane = _words("Lane", (<const LaneEntry *>_empty)[0], sizeof(LaneEntry))
Incident = _words("Incident", (<const IncidentEntry *>_empty)[0], sizeof(IncidentEntry))
Broker = _words("Broker", (<const BrokerEntry *>_empty)[0], sizeof(BrokerEntry))
Histogram = _words("Histogram", (<const HistogramEntry *>_empty)[0], sizeof(HistogramEntry))
Waiter = _words("Waiter", (<const WaiterCell *>_empty)[0], sizeof(WaiterCell))
Completion = _words("Completion", (<const CompletionCell *>_empty)[0], sizeof(CompletionCell))
# Its length is the geometry's, since the bitmap of contributors follows.
Slot = _words("Slot", {**(<const SlotHeader *>_empty)[0], "contributors": 0}, 0)
del Slot.length


@cython.final
@cython.no_gc
cdef class Geometry:
    """The sizes that determine a slab's layout, and where each region and entry begins.

    Slabs of equal geometry have the same layout.

    Args:
        slot_size: bytes in a slot, a positive multiple of 8.
        slot_count: slots.
        max_processes, max_topics, max_partitions, max_lanes: entries in the tables.
        keeps_checksums: whether slot headers have checksums, 0 or 1.

    Attributes:
        ring_length: completions that a ring holds.
        contributor_words: words of the contributors' bitmap in a slot header.
        slot_words: words in a slot header, a whole number of cache lines.
        bitmap_size: bytes in the bitmap, whole words.
        settings, locks, processes, topics, partitions, lanes, incidents, brokers, histograms, waiters, rings, bitmap,
            headers, slots: byte offsets of the regions.
        total_size: bytes in the whole segment.

    Raises:
        ValueError: a size is out of its limits; names both.
    """

    cdef Sizes sizes
    cdef Regions regions
    cdef dict __dict__

    def __init__(
        self,
        slot_size,
        slot_count,
        max_processes=128,
        max_topics=512,
        max_partitions=4096,
        max_lanes=64,
        keeps_checksums=0,
    ):
        self.sizes.slot_size = _size("slot_size", slot_size, WORD, _LARGEST, WORD)
        self.sizes.slot_count = _size("slot_count", slot_count, 1, MAX_SLOTS)
        self.sizes.max_processes = _size("max_processes", max_processes, 1, MAX_PROCESSES)
        self.sizes.max_topics = _size("max_topics", max_topics, 1, MAX_TOPICS)
        self.sizes.max_partitions = _size("max_partitions", max_partitions, 1, _LARGEST)
        self.sizes.max_lanes = _size("max_lanes", max_lanes, 1, MAX_LANES)
        self.sizes.keeps_checksums = _size("keeps_checksums", keeps_checksums, 0, 1)
        self.regions = lay_out(&self.sizes)
        places = {**self.sizes, **self.regions, "bitmap_size": (self.sizes.slot_count + 63) // 64 * WORD}
        places["slot_words"] = places.pop("header_size") // WORD
        for name, place in places.items():
            setattr(self, name, place)

    def lock(self, number):
        """Return the word index of a lock's line."""
        return _index(self.regions.locks, number, LOCK_COUNT, sizeof(LockLine))

    def process(self, entry):
        """Return the word index of a process entry."""
        return _index(self.regions.processes, entry, self.sizes.max_processes, sizeof(ProcessEntry))

    def topic(self, entry):
        """Return the word index of a topic entry."""
        return _index(self.regions.topics, entry, self.sizes.max_topics, sizeof(TopicEntry))

    def partition(self, entry):
        """Return the word index of a partition entry."""
        return _index(self.regions.partitions, entry, self.sizes.max_partitions, sizeof(PartitionEntry))

    def lane(self, entry):
        """Return the word index of a lane."""
        return _index(self.regions.lanes, entry, self.sizes.max_lanes, sizeof(LaneEntry))

    def incident(self, number):
        """Return the word index of an incident, by its number; a later incident reuses the entry."""
        return _index(self.regions.incidents, number % INCIDENTS, INCIDENTS, sizeof(IncidentEntry))

    def sender_log(self):
        """Return the word index of the entry, laid out as an incident, whose text is the place of the sender's log."""
        return _index(self.regions.incidents, INCIDENTS, INCIDENTS, sizeof(IncidentEntry))

    def broker(self, entry):
        """Return the word index of a broker entry."""
        return _index(self.regions.brokers, entry, BROKERS, sizeof(BrokerEntry))

    def sender_histogram(self, which):
        """Return the word index of a histogram of the sender."""
        return self._histogram(which)

    def broker_histogram(self, entry):
        """Return the word index of the histogram of a broker's latencies: microseconds from request to answer."""
        return self._histogram(SENDER_HISTOGRAMS + entry)

    def process_histogram(self, entry, which):
        """Return the word index of a histogram of a process."""
        return self._histogram(SENDER_HISTOGRAMS + BROKERS + entry * PROCESS_HISTOGRAMS + which)

    cdef object _histogram(self, number):
        count = SENDER_HISTOGRAMS + BROKERS + self.sizes.max_processes * PROCESS_HISTOGRAMS
        return _index(self.regions.histograms, number, count, sizeof(HistogramEntry))

    def ring(self, entry):
        """Return the word index of a process's completion ring."""
        size = self.regions.ring_length * sizeof(CompletionCell)
        return _index(self.regions.rings, entry, self.sizes.max_processes, size)

    def waiter(self, cell):
        """Return the word index of a cell of the waiter queue."""
        return _index(self.regions.waiters, cell, WAITERS, sizeof(WaiterCell))

    def header(self, slot):
        """Return the word index of a slot's header."""
        return _index(self.regions.headers, slot, self.sizes.slot_count, self.regions.header_size)

    def slot(self, slot):
        """Return the byte offset of a slot's memory."""
        return _index(self.regions.slots, slot, self.sizes.slot_count, self.sizes.slot_size) * WORD

    def replace(self, **sizes):
        """Return the geometry with some other sizes, by the names of the constructor's arguments."""
        return Geometry(**{**self._sizes(), **sizes})

    def __eq__(self, other):
        return isinstance(other, Geometry) and (<Geometry>self)._sizes() == (<Geometry>other)._sizes()

    def __hash__(self):
        return hash(tuple(self._sizes().values()))

    def __repr__(self):
        return f"Geometry({', '.join(f'{name}={value}' for name, value in self._sizes().items())})"

    def __reduce__(self):
        return Geometry, tuple(self._sizes().values())

    cdef dict _sizes(self):
        return {
            "slot_size": self.sizes.slot_size,
            "slot_count": self.sizes.slot_count,
            "max_processes": self.sizes.max_processes,
            "max_topics": self.sizes.max_topics,
            "max_partitions": self.sizes.max_partitions,
            "max_lanes": self.sizes.max_lanes,
            "keeps_checksums": self.sizes.keeps_checksums,
        }


cdef object _LARGEST = (1 << 32) - 1


cdef object _size(name, value, least, most, unit=1):
    """Return a size that is within its limits."""
    if not least <= value <= most or value % unit:
        multiple = f" and a multiple of {unit}" if unit > 1 else ""
        raise ValueError(f"{name} must be between {least} and {most}{multiple}, not {value}")
    return value


cdef object _index(uint64_t begin, entry, uint64_t count, uint64_t size):
    """Return the word index of one of so many entries; that behind the last one is their end."""
    if not 0 <= entry <= count:
        raise IndexError(f"entry {entry} of {count}")
    return (begin + <uint64_t>entry * size) // WORD


cdef dict _tables(const Sizes *sizes, const Regions *regions):
    """Return each region of words: name -> (an empty entry, bytes in an entry, where the region begins, its shape)."""
    histograms = SENDER_HISTOGRAMS + BROKERS + sizes.max_processes * PROCESS_HISTOGRAMS
    header = {**(<const SlotHeader *>_empty)[0], "contributors": [0] * <Py_ssize_t>regions.contributor_words}
    return {
        "superblock": ((<const Superblock *>_empty)[0], sizeof(Superblock), 0, ()),
        "locks": ((<const LockLine *>_empty)[0], sizeof(LockLine), regions.locks, (LOCK_COUNT,)),
        "processes": (
            (<const ProcessEntry *>_empty)[0], sizeof(ProcessEntry), regions.processes, (sizes.max_processes,)
        ),
        "topics": ((<const TopicEntry *>_empty)[0], sizeof(TopicEntry), regions.topics, (sizes.max_topics,)),
        "partitions": (
            (<const PartitionEntry *>_empty)[0], sizeof(PartitionEntry), regions.partitions, (sizes.max_partitions,)
        ),
        "lanes": ((<const LaneEntry *>_empty)[0], sizeof(LaneEntry), regions.lanes, (sizes.max_lanes,)),
        "incidents": (
            (<const IncidentEntry *>_empty)[0], sizeof(IncidentEntry), regions.incidents, (INCIDENTS + 1,)
        ),
        "brokers": ((<const BrokerEntry *>_empty)[0], sizeof(BrokerEntry), regions.brokers, (BROKERS,)),
        "histograms": (
            (<const HistogramEntry *>_empty)[0], sizeof(HistogramEntry), regions.histograms, (histograms,)
        ),
        "waiters": ((<const WaiterCell *>_empty)[0], sizeof(WaiterCell), regions.waiters, (WAITERS,)),
        "rings": (
            (<const CompletionCell *>_empty)[0],
            sizeof(CompletionCell),
            regions.rings,
            (sizes.max_processes, regions.ring_length),
        ),
        "bitmap": ({"bits": 0}, WORD, regions.bitmap, ((sizes.slot_count + 63) // 64,)),
        "headers": (header, regions.header_size, regions.headers, (sizes.slot_count,)),
    }


cdef object _dtype(dict entry, uint64_t size):
    """Return the numpy dtype of an entry, given an empty one: its words in order, and bytes in it."""
    import numpy  # a process that only sends does not need it

    formats = [("<u8", (len(words),)) if isinstance(words, list) else "<u8" for words in entry.values()]
    packed = numpy.dtype(list(zip(entry, formats, strict=True)))
    offsets = [packed.fields[name][1] for name in entry]
    return numpy.dtype({"names": list(entry), "formats": formats, "offsets": offsets, "itemsize": size})


@cython.final
@cython.no_gc  # it leads to nothing that leads back; cleared by the collector, it would not know what to unmap
cdef class Segment:
    """The mapping of a slab's file.

    Args:
        descriptor: of the file, open for reading and writing; the caller can close it afterwards.
        geometry: its layout.

    Attributes:
        geometry: its layout.

    Raises:
        OSError: it cannot be mapped.
        ValueError: the file is shorter than the layout needs.
    """

    cdef char *memory
    cdef readonly Geometry geometry
    cdef uint64_t ticket
    """Names this process in owner words; 0 before it has joined."""
    cdef uint64_t forks
    """Value of `_forks` when it joined: a forked child is another process."""

    def __cinit__(self, int descriptor, Geometry geometry not None):
        cdef stat status
        cdef void *memory
        cdef uint64_t size = geometry.regions.total_size
        if fstat(descriptor, &status):
            PyErr_SetFromErrno(OSError)
        if <uint64_t>status.st_size < size:
            raise ValueError(f"the segment has {status.st_size} bytes, but its layout needs {size}")
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
        if memory == MAP_FAILED:
            PyErr_SetFromErrno(OSError)
        self.memory = <char *>memory
        self.geometry = geometry

    def __dealloc__(self):
        if self.memory != NULL:
            munmap(self.memory, self.geometry.regions.total_size)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.memory, <Py_ssize_t>self.geometry.regions.total_size, 1, flags)

    def writable(self):
        """Return all of the memory as writable bytes, for what Python code still writes itself."""
        return memoryview(_Writable(self))

    def join(self, uint64_t entry, uint64_t incarnation):
        """Become the process of an entry of the process table: locks name it by entry and incarnation.

        Returns:
            The ticket of this process.

        Raises:
            ValueError: there is no such entry, or the incarnation has more than 48 bits.
        """
        if entry >= self.geometry.sizes.max_processes or incarnation >> 64 - TICKET_SHIFT:
            raise ValueError(f"entry {entry} of {self.geometry.sizes.max_processes}, incarnation {incarnation}")
        self.ticket = (entry + 1) | incarnation << TICKET_SHIFT
        self.forks = _forks
        return self.ticket

    def release(self):
        """Give the shared memory back: what still uses the segment finds zeros, in memory of this process.

        To unmap it instead would need a check before every use. Without room for the zeros, the memory stays until the
        segment is freed. They are moved into its place: to map them there could fail after it was unmapped.
        """
        cdef uint64_t size = self.geometry.regions.total_size
        cdef void *zeros = mmap(
            NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0
        )
        if zeros != MAP_FAILED:
            mremap(zeros, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, self.memory)

    def leave(self):
        """Become no process: locks and sections refuse this one from now on."""
        self.ticket = 0

    def view(self, str region):
        """Return a region's entries as a read-only structured array; its fields are the words of the struct.

        Args:
            region: superblock, locks, processes, topics, partitions, lanes, incidents, brokers, histograms, waiters,
                rings, bitmap or headers.

        Returns:
            An array of one dimension. The superblock has none; rings have two: process entry and completion.

        Raises:
            KeyError: there is no such region.
        """
        import numpy

        entry, size, begin, shape = _tables(&self.geometry.sizes, &self.geometry.regions)[region]
        return numpy.ndarray(shape, _dtype(entry, size), self, begin)


@cython.final
@cython.no_gc
cdef class _Writable:
    """Exports a segment's memory for writing, and keeps it mapped."""

    cdef Segment segment

    def __cinit__(self, Segment segment not None):
        self.segment = segment

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        cdef Segment segment = self.segment
        PyBuffer_FillInfo(buffer, self, segment.memory, <Py_ssize_t>segment.geometry.regions.total_size, 0, flags)
