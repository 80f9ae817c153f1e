/* Threads that wait in all ways while the main one comes to the region. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int go, ready;
static int pipes[2];
static volatile int stop;
static volatile int caught;
static __thread long own = 5;
static long counts[2];

static void handler(int signal)
{
    caught += signal;
}

static void report(void)
{
    pthread_mutex_lock(&lock);
    ready++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Waits for a futex, with something in vector and x87 registers that only it knows. */
static void *sleeper(void *arg)
{
    long double x = 1.0L + (long)arg;
    double y[4] = { 1, 2, 3, (double)(long)arg };
    own += (long)arg;
    report();
    pthread_mutex_lock(&lock);
    while (!go)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    printf("sleeper %ld: %.3Lf %.3f own %ld\n", (long)arg, x * 2, y[0] + y[1] + y[2] + y[3], own);
    return 0;
}

/* Waits in the kernel. */
static void *reader(void *arg)
{
    char bytes[16] = "";
    report();
    ssize_t n = read(pipes[0], bytes, sizeof bytes - 1);
    printf("reader: %zd %s own %ld\n", n, bytes, own);
    return arg;
}

/* Runs all the time, with its state in registers. */
static void *runner(void *arg)
{
    register uint64_t state = 88172645463325252u + (uint64_t)arg;
    report();
    while (!stop) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        counts[(long)arg]++;
    }
    printf("runner %ld: %s\n", (long)arg, state ? "ran" : "?");
    return (void *)(uintptr_t)state;
}

/* The same with the whole of a vector register, where there are long ones. */
static void *vectors(void *arg)
{
    long in[4] = { 11, 22, 33, 44 }, out[4] = { 11, 22, 33, 44 };
    report();
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vmovdqu (%1), %%ymm5\n1: cmpl $0, (%0)\nje 1b\nvmovdqu %%ymm5, (%2)\nvzeroupper\n"
                         :
                         : "r"(&stop), "r"(in), "r"(out)
                         : "memory", "cc", "xmm5");
#endif
    while (!stop)
        ;
    printf("vectors: %ld %ld %ld %ld\n", out[0], out[1], out[2], out[3]);
    return arg;
}

__attribute__((noinline)) void region(void)
{
    printf("region\n");
    raise(SIGUSR1);
    pthread_mutex_lock(&lock);
    go = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (write(pipes[1], "hello", 5) != 5)
        abort();
}

int main(void)
{
    pthread_t threads[7];
    struct sigaction action = { .sa_handler = handler };
    sigaction(SIGUSR1, &action, 0);
    if (pipe(pipes))
        return 1;
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, sleeper, (void *)i);
    pthread_create(&threads[3], 0, reader, 0);
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[4 + i], 0, runner, (void *)i);
    pthread_create(&threads[6], 0, vectors, 0);
    pthread_mutex_lock(&lock);
    while (ready < 7)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    struct timespec t = { 0, 30000000 };
    nanosleep(&t, 0);
    printf("prefix\n");
    fflush(stdout);
    region();
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    stop = 1;
    uint64_t all = 0;
    for (int i = 4; i < 6; i++) {
        void *r;
        pthread_join(threads[i], &r);
        all += (uintptr_t)r;
    }
    pthread_join(threads[6], 0);
    pthread_t last;
    pthread_create(&last, 0, sleeper, (void *)9);
    pthread_join(last, 0);
    printf("caught %d counts %lx\n", caught, (unsigned long)all + counts[0] + counts[1]);
    return 3;
}
