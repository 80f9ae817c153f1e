// Threads that share a table and a queue under locks: the argument is the number of rounds in thousands.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 3, CELLS = 4096, BATCH = 500 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long left;
static uint64_t cells[CELLS], total;

// Takes the next batch of rounds, if there is one.
static long take(void) {
    pthread_mutex_lock(&lock);
    long batch = left < BATCH ? left : BATCH;
    left -= batch;
    pthread_mutex_unlock(&lock);
    return batch;
}

static uint64_t mix(uint64_t *own, uint64_t state) {
    own[state % CELLS] += state >> 7;
    if (own[state % CELLS] % 3 == 0) return own[(state >> 20) % CELLS] ^ state;
    return own[(state >> 9) % CELLS] + state;
}

static void *work(void *number) {
    static _Thread_local uint64_t own[CELLS];
    uint64_t state = 88172645463325252ULL + (uintptr_t)number, sum = 0;
    for (long batch; (batch = take()) > 0;) {
        for (long i = 0; i < batch; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += mix(own, state);
        }
        pthread_mutex_lock(&lock);
        cells[state % CELLS] += sum;
        total += cells[sum % CELLS];
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t workers[WORKERS];
    left = (argc > 1 ? atol(argv[1]) : 1000) * 1000;
    for (long n = 0; n < WORKERS; n++) pthread_create(&workers[n], NULL, work, (void *)n);
    for (int n = 0; n < WORKERS; n++) pthread_join(workers[n], NULL);
    uint64_t sum = total;
    for (int n = 0; n < CELLS; n++) sum += cells[n];
    printf("%d workers\n", WORKERS);
    return sum == 0;
}
