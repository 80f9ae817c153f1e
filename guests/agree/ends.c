// Ways to end: the argument says how. The exit status and the fatal signal must come through.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static void at_exit(void) { puts("atexit handler"); }

__attribute__((noinline)) static void poke(uintptr_t address) { *(volatile int *)address = 1; }

static void *crash(void *arg) {
    volatile int *p = arg;
    *p = 1;
    return NULL;
}

__attribute__((noinline)) static int recurse(volatile int n) { return n < 0 ? 0 : recurse(n + 1) + n; }

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    atexit(at_exit);
    printf("before %s\n", how);
    fflush(stdout);
    volatile int zero = 0;
    pthread_t t;
    if (!strcmp(how, "return")) return 200;
    if (!strcmp(how, "exit")) exit(-1);
    if (!strcmp(how, "_exit")) _exit(17);
    if (!strcmp(how, "exit-syscall")) syscall(SYS_exit, 18);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "segv")) poke(16);
    if (!strcmp(how, "segv-thread")) pthread_create(&t, NULL, crash, NULL), pthread_join(t, NULL);
    if (!strcmp(how, "fpe")) return 12345 / zero;
    if (!strcmp(how, "ill")) __builtin_trap();
    if (!strcmp(how, "trap")) __asm__ volatile("int3");
    if (!strcmp(how, "overflow")) return recurse(1);
    if (!strcmp(how, "jump")) ((void (*)(void))0x1234)();
    if (!strcmp(how, "term")) raise(SIGTERM);
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "rt")) raise(SIGRTMIN + 3);
    if (!strcmp(how, "pipe")) {
        int fds[2];
        if (pipe(fds)) return 1;
        close(fds[0]);
        if (write(fds[1], "x", 1) < 0) return 99;
    }
    if (!strcmp(how, "alarm")) {
        struct itimerval soon = {.it_value = {0, 20000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        for (;;) zero++;
    }
    if (!strcmp(how, "blocked-segv")) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        poke(24);
    }
    if (!strcmp(how, "ignored-segv")) {
        signal(SIGSEGV, SIG_IGN);
        poke(32);
    }
    return 1;
}
