/* Crashes of different kinds; the first argument says which. */
#include <stdlib.h>

static volatile int top = 12, low = 7, unrelated = 3;
static void (*volatile handler)(void);
static void (*volatile spare)(void);
static int seen;

static void nobody(void) { seen++; }

__attribute__((noinline)) static int divided(void) {
    volatile int part = low - 7; /* part */
    int whole = top; /* whole */
    seen = unrelated; /* beside */
    return whole / part; /* divide */
}

__attribute__((noinline)) static void called(void) {
    handler = spare; /* take */
    seen = unrelated; /* aside */
    handler(); /* call */
}

int main(int count, char **words) {
    switch (words[1][0]) { /* which */
    case 'd': return divided(); /* to divide */
    case 'n':
        spare = top > 100 ? nobody : 0; /* nothing */
        called(); /* to call */
        break;
    case 'w':
        spare = (void (*)(void))(0x10000L * top); /* wild */
        called(); /* to wild */
    }
    return 0;
}
