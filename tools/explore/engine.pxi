"""The engine, for scenarios: `engine.h` says what it does."""

cdef extern from "engine.h" nogil:
    void explore_step()
    bint explore_choose()
    int SHARED
    int ALONE
    int FOREIGN
    int explore_looks()
    void explore_await(const void *word, uint64_t value, int looks)
    bint explore_has_deaths()
    bint explore_has_buffers()
    bint explore_is_dead(int number)
    void explore_assert(bint holds, const char *what)
    int explore_current()
    uint64_t explore_peek(const void *word)
    void explore_note(void *word, uint64_t value)
    const char *explore(
        int processes, int deaths, char *shared, uint64_t size, void (*body)(int) noexcept nogil,
        const char *(*check)(bint) noexcept nogil, int (*reach)(const void *, int, bint) noexcept nogil,
        bint has_buffers
    )
    struct World:
        uint64_t states
        uint64_t transitions
        uint64_t ends
        int deepest
        char *trace
    World world


cdef uint64_t ticket_at(int number) noexcept nogil:
    return <uint64_t>(number + 1) | 1 << TICKET_SHIFT


cdef bint is_within(const void *at, const void *begin, uint64_t size) noexcept nogil:
    return <const char *>begin <= <const char *>at < <const char *>begin + size


cdef tuple found(const char *violation):
    """Return what was found, as of `tools.explore.run.Finding`."""
    return (
        None if violation == NULL else violation.decode(),
        world.trace.decode(),
        world.states,
        world.transitions,
        world.ends,
        world.deepest,
    )
