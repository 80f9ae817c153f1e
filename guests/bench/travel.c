/* A run to travel in: a marker is set at the beginning, then about a billion instructions go by. With an argument: that
   many rounds; with a second one: megabytes of memory, of which a hundredth is touched in each of 100 parts. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

volatile int marker;
static uint32_t table[1024];

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100000000;
    size_t bytes = argc > 2 ? (size_t)atol(argv[2]) << 20 : 0;
    unsigned char *memory = bytes ? malloc(bytes) : 0;
    for (size_t i = 0; i < bytes; i += 4096)
        memory[i] = 1;
    marker = 1;
    uint32_t x = 1;
    for (long i = 0; i < rounds; i++) {
        x = x * 1664525 + 1013904223;
        table[x >> 22] += x;
        if (bytes && i % (rounds / 100 + 1) == 0) {
            size_t part = bytes / 100;
            unsigned char *from = memory + (size_t)(i / (rounds / 100 + 1)) * part;
            for (size_t k = 0; k < part; k += 4096)
                from[k]++;
        }
    }
    printf("%u\n", x ^ table[7]);
    return 0;
}
