// Millions of instructions in functions that wait for others: branches, loops, recursion, a switch and a callback of the C
// library are all under way for longer than a window is.
#include <stdio.h>
#include <stdlib.h>

#ifndef TIMES
#define TIMES 1 /* optimised, it takes more rounds to fill a window */
#endif

static unsigned long state = 88172645463325252ul;

static unsigned next(void) {
    state ^= state << 13; /* first shift */
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 11);
}

static unsigned churn(unsigned rounds, unsigned seed) {
    unsigned kept = seed, spare = 0; /* seed */
    for (unsigned i = 0; i < rounds * TIMES; i++) { /* rounds */
        unsigned n = next();
        if (n & 4) /* odd */
            kept += n & 3; /* kept */
        else
            spare += n; /* spare */
    }
    return kept + (spare & 0); /* churned */
}

static unsigned descend(int depth, unsigned value) {
    unsigned before = value * 3; /* before */
    if (depth > 0) { /* deeper */
        value = descend(depth - 1, value + 1); /* descend */
        if (value & 1) /* was odd */
            before += churn(5000, value); /* churn below */
    }
    return before + value; /* sum */
}

static int compare(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    static unsigned calls;
    if (++calls % 16 == 0) churn(600, calls); /* delay */
    return x < y ? -1 : x > y; /* compared */
}

int main(int argc, char **argv) {
    unsigned values[64], chosen = 0, limit = argc > 1 ? (unsigned)atoi(argv[1]) : 7; /* limit */
    unsigned unused = limit * 5; /* unused */
    for (int i = 0; i < 64; i++) values[i] = next() % 1000; /* fill */
    if (limit > 3) { /* large */
        unsigned inner = descend(12, limit); /* inner */
        qsort(values, 64, sizeof values[0], compare); /* sorted */
        for (unsigned i = 0; i < 6; i++) { /* cases */
            switch ((values[i] + inner + i) % 5) { /* switched */
            case 0: chosen += churn(4000, i); break; /* zero */
            case 1: chosen ^= values[i]; break; /* one */
            case 2: chosen += inner; break; /* two */
            case 3: chosen -= churn(3000, inner); break; /* three */
            default: chosen++; /* other */
            }
        }
    }
    unsigned flag = 1; /* flag */
    if (chosen == 12345) flag = 2; /* not taken */
    unused += churn(9000, 5); /* last delay */
    printf("%u %u\n", chosen + flag, values[5]); /* print */
    return unused == 1;
}
