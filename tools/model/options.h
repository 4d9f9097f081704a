/*
 * Forms of lock.pml that are smaller, or ask for more.
 *
 * ONE_LOOKER: only one process takes over; the others lock, wait, give up, clean up and die, and nobody comes or goes.
 * It is what four processes can be checked with.
 *
 * LIVE: the form that progress is checked in. Each process is served once. Progress cannot be asked for where others
 * give up, come and go for ever: their whims are counted. Nor where a look is concluded whenever another one is, for
 * the second finds the takeover byte taken: here nobody else moves during the microseconds of that. Nor where one waits
 * in its sleep whenever another one looks: slices last about equally long for all.
 */

#ifdef ONE_LOOKER
#define LOOKS (me == 0)
#else
#define LOOKS true
#endif

#if defined(ONE_LOOKER) || defined(LIVE)
#define COMES_AND_GOES false
#else
#define COMES_AND_GOES true
#endif

#ifdef LIVE

byte whims = 1;
#define WHIM whims > 0 -> whims--

#define UNDISTURBED_BEGIN atomic {
#define UNDISTURBED_END }

#define SLICES 4                /* from the beginning of a look to its conclusion, as in the code */
#define COUNT_SLICE slices = (slices + 1) % SLICES; keep_pace(me)
#define MAY_CONCLUDE (slices == 0)
#define MAY_WAIT (slices != 0)
#define END_WAIT slices = 0; for (i : 0 .. N - 1) { lead[me].over[i] = 0; lead[i].over[me] = 0 } i = 0

#define LEAD 2
typedef Lead { byte over[N] }
Lead lead[N];                   /* slices of p that have run out since one of q last did */
#define AHEAD(p, q) (p != q && alive[q] && wants[q] == THIS && lead[p].over[q] == LEAD)
#define IN_PACE(p) (!AHEAD(p, 0) && !AHEAD(p, 1) && !AHEAD(p, N - 1))

inline keep_pace(p) {
    for (i : 0 .. N - 1) {
        if :: i != p && lead[p].over[i] < LEAD && alive[i] && wants[i] == THIS -> lead[p].over[i]++ :: else fi;
        lead[i].over[p] = 0
    }
    i = 0
}

#else

#define WHIM true
#define UNDISTURBED_BEGIN
#define UNDISTURBED_END
#define COUNT_SLICE skip
#define MAY_CONCLUDE true
#define MAY_WAIT true
#define END_WAIT skip
#define IN_PACE(p) true

#endif
