// A handler that edits the interrupted context: instruction pointer, general registers, flags, vector registers.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

extern char skip_from[], skip_to[], fault_here[], resume_here[], div_here[];

static void handler(int signo, siginfo_t *info, void *context) {
    (void)info;
    ucontext_t *uc = context;
    greg_t *r = uc->uc_mcontext.gregs;
    if (signo == SIGILL) {
        r[REG_RIP] = (greg_t)skip_to;
    } else if (signo == SIGSEGV) {
        r[REG_RAX] = 0x1122334455667788;
        r[REG_R15] ^= 0xff;
        r[REG_RIP] = (greg_t)resume_here;
        r[REG_EFL] |= 1;  // carry
        uint64_t lanes[2] = {0x0123456789abcdef, 42};
        memcpy(&uc->uc_mcontext.fpregs->_xmm[5], lanes, 16);
    } else if (signo == SIGFPE) {
        r[REG_RCX] = 5;  // retry the division with another divisor
    }
}

int main(void) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &sa, NULL);
    sigaction(SIGSEGV, &sa, NULL);
    sigaction(SIGFPE, &sa, NULL);
    uint64_t x = 1;
    __asm__ volatile("movq $10, %0\nskip_from: ud2\nmovq $20, %0\nskip_to: addq $1, %0" : "+r"(x));
    printf("skipped to %lu\n", x);

    uint64_t rax, r15, low, high;
    uint8_t carry;
    __asm__ volatile(
        "movq $0x100, %%r15\nxorl %%eax, %%eax\npxor %%xmm5, %%xmm5\nclc\n"
        "fault_here: movq (%%rax), %%rax\nud2\n"
        "resume_here: setc %4\nmovq %%rax, %0\nmovq %%r15, %1\nmovq %%xmm5, %2\npsrldq $8, %%xmm5\nmovq %%xmm5, %3"
        : "=m"(rax), "=m"(r15), "=m"(low), "=m"(high), "=m"(carry) : : "rax", "r15", "xmm5", "cc", "memory");
    printf("rax %lx r15 %lx xmm5 %lx %lx carry %d\n", rax, r15, low, high, carry);

    uint64_t quotient;
    __asm__ volatile("movl $35, %%eax\nxorl %%edx, %%edx\nxorl %%ecx, %%ecx\ndiv_here: divq %%rcx\nmovq %%rax, %0"
                     : "=m"(quotient) : : "rax", "rcx", "rdx", "cc");
    printf("35 / 5 after repair = %lu\n", quotient);

    // A fault inside a longer computation: all registers must survive the handler.
    uint64_t sum = 0;
    for (uint64_t i = 1; i <= 20; i++) {
        uint64_t q;
        __asm__ volatile("movq %1, %%rax\nxorl %%edx, %%edx\nxorl %%ecx, %%ecx\ndivq %%rcx\nmovq %%rax, %0"
                         : "=m"(q) : "r"(i * 1000) : "rax", "rcx", "rdx", "cc");
        sum = sum * 3 + q;
    }
    printf("sum %lu\n", sum);
    return 0;
}
