// Waits end when they should: by cancellation, by their limit, and not before. With virtual time, that has to pass.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;
static int ends[2], cleaned;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void unlock(void *mutex) {
    cleaned++;
    pthread_mutex_unlock(mutex);
}

static void *wait_long(void *arg) {
    char c;
    int n;
    sigset_t s;
    struct timespec t;
    switch ((long)arg) {
    case 0: pause(); break;
    case 1: sleep(1000); break;
    case 2:
        pthread_mutex_lock(&lock);
        pthread_cleanup_push(unlock, &lock);
        for (;;) pthread_cond_wait(&changed, &lock);
        pthread_cleanup_pop(0);
        break;
    case 3:
        pthread_mutex_lock(&other);
        pthread_cleanup_push(unlock, &other);
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec += 1000;
        pthread_cond_timedwait(&never, &other, &t);
        pthread_cleanup_pop(1);
        break;
    case 4: poll(NULL, 0, 1000000); break;
    case 5: if (read(ends[0], &c, 1)) {} break;
    case 6:
        sigemptyset(&s);
        sigaddset(&s, SIGUSR1);
        sigwait(&s, &n);
        break;
    case 7:
        sigemptyset(&s);
        sigsuspend(&s);
        break;
    }
    return NULL;
}

static void cancel(void) {
    enum { N = 8 };
    pthread_t t[N];
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &s, NULL);
    if (pipe(ends)) exit(1);
    for (long i = 0; i < N; i++) pthread_create(t + i, NULL, wait_long, (void *)i);
    usleep(20000);
    double start = now();
    for (int i = 0; i < N; i++) {
        void *result;
        pthread_cancel(t[i]);
        pthread_join(t[i], &result);
        printf("%d cancelled: %d\n", i, result == PTHREAD_CANCELED);
    }
    printf("cleaned up %d, soon: %d\n", cleaned, now() - start < 500);
}

static double start;

static void lasted(const char *what, long result) {
    double d = now() - start;
    printf("%s: %ld, as long as it should: %d\n", what, result, d >= 0.05 && d < 20);
    start = now();
}

static void handle(int n) { (void)n; }

static void limits_of(void) {
    struct timespec t = {0, 50000000}, end;
    struct timeval v = {0, 50000};
    struct epoll_event event;
    int epoll = epoll_create1(0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct pollfd fd = {ends[0], POLLIN, 0};
    start = now();
    lasted("poll", poll(&fd, 1, 50));
    lasted("ppoll", ppoll(&fd, 1, &t, NULL));
    lasted("epoll_wait", epoll_wait(epoll, &event, 1, 50));
    lasted("select", select(ends[0] + 1, &set, NULL, NULL, &v));
    printf("left in the set: %d, of the limit: %ld\n", FD_ISSET(ends[0], &set) != 0, v.tv_sec + v.tv_usec);
    FD_SET(ends[0], &set);
    lasted("pselect", pselect(ends[0] + 1, &set, NULL, NULL, &t, NULL));
    lasted("nanosleep", nanosleep(&t, NULL));
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += 50000000;
    if (end.tv_nsec >= 1000000000) end.tv_nsec -= 1000000000, end.tv_sec++;
    lasted("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL));
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR2);
    lasted("sigtimedwait", sigtimedwait(&s, NULL, &t));
    // An event that comes from outside ends a wait before its limit.
    int news[2];
    if (pipe(news)) exit(1);
    pid_t child = fork();
    if (child == 0) {
        usleep(60000);
        _exit(write(news[1], "x", 1) != 1);
    }
    fd.fd = news[0];
    lasted("poll of a child's pipe", poll(&fd, 1, 30000));
    int status, n = 0;
    while (n == 0) n = waitpid(child, &status, WNOHANG), usleep(1000);
    printf("child ended: %d %d\n", n == child, status);
    uint64_t t1 = __rdtsc(), t2 = __rdtsc();
    printf("counter moves: %d\n", t2 > t1);
    close(news[0]), close(news[1]), close(epoll);
}

static void *sleep_on(void *arg) {
    pthread_mutex_lock(&lock);
    while (!*(volatile int *)arg) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *tick(void *arg) {
    while (!*(volatile int *)arg) usleep(7000);
    return NULL;
}

// Alone, beside a thread that sleeps on a futex, and beside one that sleeps again and again.
static void limits(void) {
    if (pipe(ends)) exit(1);
    struct sigaction a = {.sa_handler = handle};
    sigaction(SIGUSR2, &a, NULL);
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &s, NULL);
    limits_of();
    void *(*beside[])(void *) = {sleep_on, tick};
    for (int i = 0; i < 2; i++) {
        volatile int done = 0;
        pthread_t t;
        pthread_create(&t, NULL, beside[i], (void *)&done);
        limits_of();
        pthread_mutex_lock(&lock);
        done = 1;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        pthread_join(t, NULL);
    }
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc > 1 && strcmp(argv[1], "cancel") == 0) return cancel(), 0;
    if (argc > 1 && strcmp(argv[1], "limits") == 0) return limits(), 0;
    fprintf(stderr, "waits: no such part\n");
    return 2;
}
