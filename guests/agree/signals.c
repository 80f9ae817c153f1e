// Asynchronous signals: masks, pending sets, queues, restarts, timers, signalfd. The argument selects the part.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t count, last, depth, deepest;

static void counting(int signo) {
    count++;
    last = signo;
}

static void install(int signo, void (*f)(int), int flags) {
    struct sigaction sa = {.sa_handler = f, .sa_flags = flags};
    sigaction(signo, &sa, NULL);
}

static void masks(void) {
    sigset_t set, old, pending;
    install(SIGUSR1, counting, 0);
    install(SIGUSR2, counting, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    raise(SIGUSR1);
    sigpending(&pending);
    printf("blocked: handled %d pending %d other pending %d\n", count, sigismember(&pending, SIGUSR1),
           sigismember(&pending, SIGUSR2));
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("unblocked: handled %d (standard signals do not queue)\n", count);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    sigset_t wait_for = old;
    sigdelset(&wait_for, SIGUSR1);
    int r = sigsuspend(&wait_for);
    printf("sigsuspend %d errno %s handled %d\n", r, strerror(errno), count);
    sigprocmask(SIG_SETMASK, NULL, &pending);
    printf("mask restored: %d\n", sigismember(&pending, SIGUSR1));
    install(SIGUSR2, counting, SA_RESETHAND);
    raise(SIGUSR2);
    struct sigaction now;
    sigaction(SIGUSR2, NULL, &now);
    printf("reset to default: %d\n", now.sa_handler == SIG_DFL);
    install(SIGUSR2, SIG_IGN, 0);
    raise(SIGUSR2);
    printf("ignored, handled %d\n", count);
}

static void nested(int signo) {
    depth++;
    if (depth > deepest) deepest = depth;
    if (depth < 4) raise(signo);
    depth--;
}

static void nesting(void) {
    install(SIGUSR1, nested, SA_NODEFER);
    raise(SIGUSR1);
    printf("with SA_NODEFER depth %d\n", deepest);
    deepest = 0;
    install(SIGUSR1, nested, 0);
    depth = 3;
    raise(SIGUSR1);
    printf("without depth %d\n", deepest);
}

static int order[64], values[64], taken;

static void queued(int signo, siginfo_t *info, void *context) {
    (void)context;
    order[taken] = signo - SIGRTMIN;
    values[taken++] = info->si_value.sival_int + (info->si_code == SI_QUEUE ? 0 : 1000) + (info->si_pid == getpid() ? 0 : 5000);
}

static void queues(void) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < 4; i++) {
        struct sigaction sa = {.sa_sigaction = queued, .sa_flags = SA_SIGINFO};
        sigfillset(&sa.sa_mask);
        sigaction(SIGRTMIN + i, &sa, NULL);
        sigaddset(&set, SIGRTMIN + i);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 12; i++) sigqueue(getpid(), SIGRTMIN + (i * 7) % 4, (union sigval){.sival_int = i});
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    for (int i = 0; i < taken; i++) printf("realtime %d value %d\n", order[i], values[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = 99});
    siginfo_t info;
    int s = sigwaitinfo(&set, &info);
    printf("sigwaitinfo %d value %d\n", s - SIGRTMIN, info.si_value.sival_int);
    struct timespec soon = {0, 20 * 1000 * 1000};
    s = sigtimedwait(&set, &info, &soon);
    printf("sigtimedwait %d %s\n", s, s < 0 ? strerror(errno) : "");
}

static void restarts(void) {
    for (int restart = 0; restart < 2; restart++) {
        int fds[2];
        if (pipe(fds)) exit(1);
        count = 0;
        install(SIGALRM, counting, restart ? SA_RESTART : 0);
        pid_t child = fork();
        if (child == 0) {
            usleep(150 * 1000);
            if (write(fds[1], "x", 1) != 1) _exit(1);
            _exit(0);
        }
        struct itimerval in = {.it_value = {0, 50 * 1000}};
        setitimer(ITIMER_REAL, &in, NULL);
        char c = '-';
        ssize_t n = read(fds[0], &c, 1);
        int e = errno;
        printf("read %s: %zd %s %c, handled %d\n", restart ? "restarted" : "interrupted", n, n < 0 ? strerror(e) : "ok", c, count);
        waitpid(child, NULL, 0);
        close(fds[0]);
        close(fds[1]);
    }
    install(SIGALRM, counting, SA_RESTART);
    struct itimerval in = {.it_value = {0, 20 * 1000}};
    setitimer(ITIMER_REAL, &in, NULL);
    struct timespec want = {10, 0}, left = {0, 0};
    int r = nanosleep(&want, &left);
    printf("nanosleep %d %s, about 10 s left: %d\n", r, strerror(errno), left.tv_sec == 9);
    setitimer(ITIMER_REAL, &in, NULL);
    r = poll(NULL, 0, 10000);
    printf("poll %d %s\n", r, strerror(errno));
    setitimer(ITIMER_REAL, &in, NULL);
    r = pause();
    printf("pause %d %s\n", r, strerror(errno));
}

static void timers(void) {
    install(SIGALRM, counting, 0);
    struct itimerval every = {{0, 2000}, {0, 2000}};
    setitimer(ITIMER_REAL, &every, NULL);
    volatile uint64_t work = 0;
    while (count < 20) work++;
    struct itimerval off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &off, NULL);
    printf("interval timer reached 20 while computing\n");
    count = 0;
    install(SIGPROF, counting, 0);
    setitimer(ITIMER_PROF, &every, NULL);
    while (count < 3) work++;
    setitimer(ITIMER_PROF, &off, NULL);
    printf("profiling timer reached 3\n");
    count = 0;
    install(SIGRTMIN, counting, 0);
    timer_t t;
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    ev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &ev, &t)) perror("timer_create");
    struct itimerspec spec = {{0, 2000000}, {0, 2000000}};
    timer_settime(t, 0, &spec, NULL);
    while (count < 5) pause();
    timer_delete(t);
    printf("posix timer to this thread reached 5\n");
    alarm(1);
    install(SIGALRM, counting, 0);
    count = 0;
    unsigned left = alarm(0);
    printf("alarm cancelled with %u s left\n", left);
}

static void descriptors(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct signalfd_siginfo info;
    ssize_t n = read(fd, &info, sizeof info);
    printf("empty signalfd: %zd %s\n", n, strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        kill(getppid(), SIGUSR1);
        _exit(9);
    }
    int seen_usr1 = 0, seen_child = 0;
    while (!seen_usr1 || !seen_child) {
        struct pollfd p = {fd, POLLIN, 0};
        poll(&p, 1, 10000);
        while (read(fd, &info, sizeof info) == sizeof info) {
            if (info.ssi_signo == SIGUSR1) seen_usr1 = info.ssi_pid == (uint32_t)child;
            if (info.ssi_signo == SIGCHLD) seen_child = info.ssi_status;
        }
    }
    waitpid(child, NULL, 0);
    printf("signalfd: from child %d, status %d\n", seen_usr1, seen_child);
    int tfd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec spec = {{0, 3000000}, {0, 3000000}};
    timerfd_settime(tfd, 0, &spec, NULL);
    uint64_t total = 0, one;
    while (total < 5) {
        if (read(tfd, &one, sizeof one) != sizeof one) break;
        total += one;
    }
    printf("timerfd expired at least 5 times: %d\n", total >= 5);
}

static volatile int hits[3];
static pthread_t workers[3];

static void in_thread(int signo) {
    (void)signo;
    for (int i = 0; i < 3; i++)
        if (pthread_equal(pthread_self(), workers[i])) hits[i]++;
}

static volatile int stop;

static void *spin(void *arg) {
    volatile uint64_t n = 0;
    while (!stop) n++;
    return arg;
}

static void directed(void) {
    install(SIGUSR1, in_thread, 0);
    for (int i = 0; i < 3; i++) pthread_create(&workers[i], NULL, spin, NULL);
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < 3; i++) {
            int before = hits[i];
            pthread_kill(workers[i], SIGUSR1);
            while (hits[i] == before) usleep(100);
        }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(workers[i], NULL);
    printf("thread-directed: %d %d %d\n", hits[0], hits[1], hits[2]);
}

static void red_zone_handler(int signo) {
    (void)signo;
    volatile char junk[4096];
    memset((char *)junk, 0xee, sizeof junk);
    count++;
}

// A leaf function keeps its locals below the stack pointer; a signal must not touch them.
__attribute__((noinline, target("general-regs-only"))) static uint64_t leaf(uint64_t n) {
    volatile uint64_t a = n, b = n * 3, c = n * 5, d = n * 7, e = n * 11;
    for (int i = 0; i < 2000; i++) {
        a += b ^ i;
        b += c ^ i;
        c += d ^ i;
        d += e ^ i;
        e += a ^ i;
    }
    return a ^ b ^ c ^ d ^ e;
}

static void red_zone(void) {
    uint64_t expected = leaf(12345);
    install(SIGALRM, red_zone_handler, SA_RESTART);
    struct itimerval every = {{0, 500}, {0, 500}}, off = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    int wrong = 0;
    while (count < 100) wrong += leaf(12345) != expected;
    setitimer(ITIMER_REAL, &off, NULL);
    printf("red zone: wrong %d\n", wrong);
}

int main(int argc, char **argv) {
    struct { const char *name; void (*run)(void); } parts[] = {
        {"masks", masks}, {"nesting", nesting}, {"queues", queues}, {"restarts", restarts}, {"timers", timers},
        {"descriptors", descriptors}, {"directed", directed}, {"red-zone", red_zone},
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc > 1 && strcmp(argv[1], parts[i].name) == 0) return parts[i].run(), 0;
    fprintf(stderr, "signals: no such part\n");
    return 2;
}
