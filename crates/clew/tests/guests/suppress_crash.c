/* Dies of SIGSEGV: clearing goes one place too far and clears the pointer behind. */
#include <stdio.h>

static long value = 5;
static volatile int places = 4;
static struct {
    volatile long slots[4];
    long *volatile chosen;
} table = {{1, 2, 3, 4}, &value};

__attribute__((noinline)) static void clear(volatile long *at, int count) {
    for (int i = 0; i <= count; i++)
        at[i] = 0; /* statement */
}

__attribute__((noinline)) static long use(void) {
    return *table.chosen; /* dies */
}

int main(void) {
    clear(table.slots, places); /* call */
    printf("%ld\n", use());
    return 0;
}
