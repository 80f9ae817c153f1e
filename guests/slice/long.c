// Millions of instructions between what is printed and what it comes from; one table is filled for nothing.
#include <stdio.h>
#include <stdlib.h>

static unsigned table[256], unused[256];

static unsigned mixed(unsigned value) {
    unsigned sum = 0;
    for (int bit = 0; bit < 8; bit++) /* bits */
        if (value >> bit & 1) sum += table[(value + bit) & 255]; /* sum */
    return sum; /* mixed */
}

int main(int argc, char **argv) {
    unsigned first = argc > 1 ? (unsigned)atoi(argv[1]) : 1; /* first */
    unsigned second = argc > 2 ? (unsigned)atoi(argv[2]) : 1; /* second */
    for (int i = 0; i < 256; i++) {
        table[i] = first * (unsigned)i; /* fill */
        unused[i] = second + (unsigned)i; /* unused */
    }
    for (unsigned i = 0; i < 60000; i++) {
        table[i & 255] ^= mixed(i); /* change */
        unused[i & 255] += second; /* wasted */
    }
    printf("%u\n", table[7]); /* print */
    return unused[3] == 1;
}
