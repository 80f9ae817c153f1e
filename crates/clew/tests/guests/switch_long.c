// Goes around for hundreds of thousands of ticks; its branches are executed at different rates, in own code and behind calls.
#include <stdio.h>

static unsigned state = 1;

static unsigned next(void) {
    state = state * 1664525 + 1013904223;
    return state >> 16;
}

int main(void) {
    unsigned odd = 0, rare = 0;
    for (int i = 0; i < 700000; i++) {
        unsigned n = next();
        if (n & 1)
            odd++;
        if (n % 1000 == 7)
            rare += odd;
    }
    printf("%u %u\n", odd, rare);
    return 0;
}
