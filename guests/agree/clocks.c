// Time moves forward and sleeps last; what is printed does not depend on the moment.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static uint64_t now(clockid_t c) {
    struct timespec t;
    clock_gettime(c, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

int main(void) {
    clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW,
                          CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
    for (int i = 0; i < 6; i++) {
        uint64_t a = now(clocks[i]), b = a, backwards = 0;
        for (int j = 0; j < 1000; j++) {
            uint64_t c = now(clocks[i]);
            backwards += c < b;
            b = c;
        }
        printf("clock %d backwards %lu moved %d\n", i, backwards, b > a);
    }
    uint64_t a = now(CLOCK_MONOTONIC);
    struct timespec t = {0, 30000000};
    nanosleep(&t, NULL);
    uint64_t b = now(CLOCK_MONOTONIC);
    printf("slept at least 30 ms: %d, not long: %d\n", b - a >= 30000000, b - a < 5000000000ULL);
    struct timespec deadline;
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_nsec += 20000000;
    if (deadline.tv_nsec >= 1000000000) deadline.tv_sec++, deadline.tv_nsec -= 1000000000;
    printf("absolute sleep: %d\n", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL));
    uint64_t t1 = __rdtsc();
    unsigned aux;
    uint64_t t2 = __rdtscp(&aux);
    printf("tsc moves forward: %d\n", t2 > t1);
    struct timeval tv;
    gettimeofday(&tv, NULL);
    printf("same second as time(): %d\n", time(NULL) - tv.tv_sec <= 1);
    unsigned char r1[32], r2[32];
    ssize_t n1 = getrandom(r1, 32, 0), n2 = getrandom(r2, 32, GRND_NONBLOCK);
    printf("getrandom %zd %zd differ %d\n", n1, n2, memcmp(r1, r2, 32) != 0);
    struct rusage u;
    struct tms tm;
    printf("getrusage %d, times %d\n", getrusage(RUSAGE_SELF, &u), times(&tm) != (clock_t)-1);
    return 0;
}
