/* Code whose lines, variables and end are asked for in several ways. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int noise = 3;

static inline __attribute__((always_inline)) int doubled(int value) {
    return value * 2 + noise; /* inlined */
}

/* The variable is in a register when this is optimized. */
__attribute__((noinline)) static int summed(int count) {
    int sum = noise; /* begun */
    for (int n = 0; n < count; n++) { /* loop */
        sum += doubled(n); /* added */
        noise = sum; /* noted */
    }
    return sum;
}

__attribute__((noinline)) static void give_up(int value) {
    if (value > 2) /* decided */
        abort(); /* aborted */
}

__attribute__((noinline)) static void spin(int step) {
    volatile unsigned left = 1; /* left */
    while (left != 0) { /* waiting */
        left += (unsigned)step * 2; /* never zero */
        if (left == 41)
            puts("spinning");
        fflush(stdout);
        usleep(1000);
    }
}

int main(int argc, char **argv) {
    int total = summed(argc + 3); /* call */
    if (argc > 1 && !strcmp(argv[1], "abort"))
        give_up(total);
    if (argc > 1 && !strcmp(argv[1], "spin"))
        spin(argc); /* spins */
    printf("%d\n", total); /* printed */
    return 0;
}
