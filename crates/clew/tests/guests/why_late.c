// A loop whose end is stepped over, in a program that works for long before it, and for longer behind it.
#include <stdio.h>

static unsigned work(unsigned n) {
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++) sum += i & 3;
    return sum;
}

int main(int argc, char **argv) {
    (void)argv;
    unsigned step = 1, sum = work(4000000);
    if (argc < 2) step = 2;
    for (unsigned i = 0; i != 9; i += step) sum += i & 3;
    printf("%u\n", sum + work(12000000));
    return 0;
}
