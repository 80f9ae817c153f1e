// Goes around for hundreds of thousands of ticks; its branches are executed at different rates, in own code and behind calls.
#include <stdio.h>
#include <stdlib.h>

static unsigned state = 1;

static unsigned next(void) {
    state = state * 1664525 + 1013904223;
    return state >> 16;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 700000;
    unsigned odd = 0, rare = 0;
    for (int i = 0; i < rounds; i++) {
        unsigned n = next();
        if (n & 1) /* branch */
            odd++; /* statement */
        if (n % 1000 == 7)
            rare += odd;
    }
    printf("%u %u\n", odd, rare);
    return 0;
}
