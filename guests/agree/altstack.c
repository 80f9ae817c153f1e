// Running out of stack, handled on an alternate signal stack; and what sigaltstack reports.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static sigjmp_buf again;
static char *alternate;
static volatile int on_alternate;

static void handler(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)info, (void)context;
    char here;
    stack_t now;
    sigaltstack(NULL, &now);
    on_alternate = &here >= alternate && &here < alternate + SIGSTKSZ * 4 && (now.ss_flags & SS_ONSTACK);
    siglongjmp(again, 1);
}

__attribute__((noinline)) static int recurse(int n) {
    volatile char frame[512];
    frame[0] = (char)n;
    return (n < 0 ? 0 : recurse(n + 1)) + frame[0];
}

static void plain(int signo) {
    char here;
    printf("plain handler for %d on alternate stack: %d\n", signo, &here >= alternate && &here < alternate + SIGSTKSZ * 4);
}

int main(void) {
    struct rlimit small = {1 << 20, 8 << 20};
    setrlimit(RLIMIT_STACK, &small);
    alternate = malloc(SIGSTKSZ * 4);
    stack_t stack = {.ss_sp = alternate, .ss_size = SIGSTKSZ * 4};
    sigaltstack(&stack, NULL);
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &sa, NULL);
    for (volatile int i = 0; i < 3; i++) {
        on_alternate = 0;
        if (!sigsetjmp(again, 1)) recurse(0);
        printf("overflow %d handled on the alternate stack: %d\n", i, on_alternate);
    }
    struct sigaction other = {.sa_handler = plain, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &other, NULL);
    raise(SIGUSR1);
    other.sa_flags = 0;
    sigaction(SIGUSR1, &other, NULL);
    raise(SIGUSR1);
    stack_t old, off = {.ss_flags = SS_DISABLE};
    sigaltstack(&off, &old);
    printf("old stack reported: %d size %d\n", old.ss_sp == alternate, old.ss_size == (size_t)SIGSTKSZ * 4);
    sigaltstack(NULL, &old);
    printf("now disabled: %d\n", old.ss_flags == SS_DISABLE);
    return 0;
}
