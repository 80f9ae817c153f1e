// Computes for a while and fails at its end: of 64 numbers one is put into the wrong class. The first argument is the number
// of rounds in thousands; with a second one the result is right.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t cells[1024];

static int class_of(int n, int right) {
    int limit = right ? 32 : 33;
    if (n < limit)
        return 0;
    return cells[n] == 0 ? 2 : 1;
}

int main(int argc, char **argv) {
    long rounds = (argc > 1 ? atol(argv[1]) : 1000) * 1000;
    uint64_t state = 88172645463325252ULL;
    for (long i = 0; i < rounds; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if (state & 1)
            cells[state >> 8 & 1023] += 1 + (state & 2);
    }
    for (int n = 0; n < 64; n++)
        putchar('0' + class_of(n, argc > 2));
    putchar('\n');
    return 0;
}
