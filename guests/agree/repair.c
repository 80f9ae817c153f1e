// A SIGSEGV handler that makes the page accessible and retries: the way garbage collectors and demand pagers work.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PAGES = 64, PAGE = 4096 };
static unsigned char *area;
static volatile int repaired;

static void handler(int signo, siginfo_t *info, void *context) {
    (void)signo, (void)context;
    uintptr_t page = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);
    repaired++;
    mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE);
}

int main(void) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &sa, NULL);
    area = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned sum = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PAGES * PAGE; i += 1000) {
            area[i] = (unsigned char)(area[i] + i * 7 + round);
            sum = sum * 31 + area[i];
        }
        printf("round %d: repaired %d sum %u\n", round, repaired, sum);
        mprotect(area, PAGES * PAGE, round == 0 ? PROT_READ : PROT_NONE);
    }
    // One instruction that faults twice: a copy from one closed page to another.
    mprotect(area, PAGES * PAGE, PROT_NONE);
    repaired = 0;
    __asm__ volatile("movq %0, %%rsi\nmovq %1, %%rdi\nmovl $5000, %%ecx\nrep movsb"
                     : : "r"(area), "r"(area + 16 * PAGE) : "rcx", "rsi", "rdi", "memory");
    printf("copy repaired %d pages, equal %d\n", repaired, __builtin_memcmp(area, area + 16 * PAGE, 5000) == 0);
    return 0;
}
