/* Signals: raised and from faults; handlers that repair, skip, return, nest, run on their own stack or jump out.
 * flags: -O1 -fno-omit-frame-pointer */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int hits, depth, deepest;
static char *page;
static sigjmp_buf out;
static char alternate[65536];
static volatile unsigned work;

static void install(int signo, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = handler;
    sa.sa_flags = SA_SIGINFO | flags;
    sigaction(signo, &sa, 0);
}

static void count(int signo, siginfo_t *info, void *context) {
    (void)info, (void)context;
    hits += signo;
    for (int i = 0; i < 20; i++) work = work * 3 + (unsigned)i;
}
static void nest(int signo, siginfo_t *info, void *context) {
    (void)info, (void)context;
    depth++;
    if (depth > deepest) deepest = depth;
    if (depth < 4) raise(signo);
    depth--;
}
/* Repairs the page, then the store is retried. */
static void repair(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)context;
    hits += 100;
    if ((char *)info->si_addr >= page && (char *)info->si_addr < page + 8192)
        mprotect((void *)((unsigned long)info->si_addr & ~4095ul), 4096, PROT_READ | PROT_WRITE);
}
/* Skips a division of two bytes and gives it a result. */
static void skip_division(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)info;
    ucontext_t *u = context;
    u->uc_mcontext.gregs[REG_RIP] += 2;
    u->uc_mcontext.gregs[REG_RAX] = 4242;
    hits += 1000;
}
static void jump_out(int signo, siginfo_t *info, void *context) {
    (void)info, (void)context;
    siglongjmp(out, signo);
}

__attribute__((noinline)) static int divide(int a, int b) {
    int q, r;
    __asm__ volatile("cltd; idivl %3" : "=a"(q), "=&d"(r) : "0"(a), "c"(b) : "cc");
    return q;
}

int main(void) {
    stack_t st = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&st, 0);
    install(SIGUSR1, count, 0);
    for (int i = 0; i < 5; i++) raise(SIGUSR1), work += (unsigned)hits;
    printf("raised %d %u\n", hits, work);
    install(SIGUSR2, nest, SA_NODEFER);
    raise(SIGUSR2);
    printf("nested %d %d\n", depth, deepest);
    page = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    install(SIGSEGV, repair, SA_ONSTACK);
    for (int i = 0; i < 8; i++) page[i * 1000] = (char)i;
    /* A string store that crosses into the second page in the middle. */
    mprotect(page, 8192, PROT_NONE);
    __asm__ volatile("rep stosb" ::"D"(page + 4060), "c"(80), "a"(7) : "memory");
    printf("repaired %d %d %d\n", hits, page[4095], page[4100]);
    install(SIGFPE, skip_division, SA_ONSTACK);
    printf("divided %d %d\n", divide(10, 3), divide(5, 0));
    install(SIGSEGV, jump_out, SA_ONSTACK);
    install(SIGILL, jump_out, 0);
    for (volatile int i = 0; i < 6; i++) {
        int s = sigsetjmp(out, 1);
        if (s == 0) {
            if (i % 3 == 0) *(volatile int *)(8ul + (unsigned long)i) = 1;
            if (i % 3 == 1) __asm__ volatile("ud2");
            if (i % 3 == 2) work = *(volatile unsigned *)0x7fff00000123ul;
        }
        printf("out %d %d\n", i, s);
    }
    /* Blocked, pending twice, delivered once. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    raise(SIGUSR1), raise(SIGUSR1);
    int before = hits;
    sigprocmask(SIG_UNBLOCK, &set, 0);
    printf("pending %d\n", hits - before);
    signal(SIGTERM, SIG_DFL);
    fflush(stdout);
    raise(SIGTERM);
    return 1;
}
