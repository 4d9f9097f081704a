/*
 * The form of lock.pml that progress is checked in: LIVE.
 *
 * Each thread is served once. DEATHS processes can die, and STOPS of them can stop for ever, at any step. Progress
 * cannot be asked for where waiters give up, or processes come, for ever: their whims are counted. Nor is it asked for
 * while a stopped process has the lock: it is alive, and keeps it.
 *
 * Otherwise deaths are not counted: any number of them is checked.
 */

#ifdef LIVE

byte deaths, stops;
byte whims = WHIMS;
bit stopped[N];

#define MAY_WHIM whims > 0
#define COUNT_WHIM whims--
#define MAY_DIE deaths < DEATHS
#define COUNT_DEATH deaths++
#define COMES_AND_GOES false

#else

#define MAY_WHIM true
#define COUNT_WHIM skip
#define MAY_DIE true
#define COUNT_DEATH skip
#define COMES_AND_GOES true

#endif
