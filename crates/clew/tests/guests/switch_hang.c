/* Never ends: with a step of two the loop jumps over its end. Expected: "9". */
#include <stdio.h>

static volatile int step = 1, at;

__attribute__((noinline)) static void set(int to) {
    step = to;
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc < 3) /* critical */
        set(2);
    while (at != 9)
        at = at + step;
    printf("%d\n", at);
    return 0;
}
