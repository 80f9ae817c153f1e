// A loop full of branches that depend on data: the argument is the number of rounds in thousands.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t cells[4096];

int main(int argc, char **argv) {
    long rounds = (argc > 1 ? atol(argv[1]) : 1000) * 1000;
    uint64_t state = 88172645463325252ULL, sum = 0;
    for (long i = 0; i < rounds; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        uint32_t *cell = &cells[state & 4095];
        if (state & 0x1000) *cell += 3;
        else if (state & 0x2000) *cell ^= (uint32_t)i;
        else *cell -= 7;
        switch (state >> 16 & 7) {
        case 0: sum += *cell; break;
        case 1: sum ^= *cell; break;
        case 2: sum -= i; break;
        case 3: if (*cell > 1000) sum++; break;
        case 4: sum = sum << 1 | sum >> 63; break;
        case 5: if (sum & 1) sum += 5; break;
        default: sum += state >> 40;
        }
        for (uint32_t j = 0; j < (state & 3); j++)
            if (cells[(*cell + j) & 4095] & 1) sum++;
    }
    printf("%lu\n", sum);
    return 0;
}
