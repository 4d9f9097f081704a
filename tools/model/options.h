/*
 * Forms of lock.pml that are smaller, or ask for more.
 *
 * ONE_LOOKER: only one process takes over; the others lock, wait, give up, clean up and die, and none comes or goes.
 * It is what four processes can be checked with.
 *
 * LIVE: the form that progress is checked in. Each process is served once. Progress cannot be asked for where others
 * give up, come and go for ever: their whims are counted. Nor where a look is concluded whenever another one is, for
 * the second finds the takeover byte taken: here no other process moves during the microseconds of that.
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

#define MAY_PASS false

#else

#define WHIM true
#define UNDISTURBED_BEGIN
#define UNDISTURBED_END
#define MAY_PASS true

#endif
