// Synchronous faults: each kind is raised, caught, described and left by siglongjmp.
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf again;
static volatile int seen_signal, seen_code;
static void *volatile seen_addr;
static volatile greg_t seen_rip, seen_trap, seen_err;
static volatile greg_t seen_r12, seen_rsp;

static void handler(int signo, siginfo_t *info, void *context) {
    ucontext_t *uc = context;
    seen_signal = signo;
    seen_code = info->si_code;
    seen_addr = info->si_addr;
    seen_rip = uc->uc_mcontext.gregs[REG_RIP];
    seen_trap = uc->uc_mcontext.gregs[REG_TRAPNO];
    seen_err = uc->uc_mcontext.gregs[REG_ERR];
    seen_r12 = uc->uc_mcontext.gregs[REG_R12];
    seen_rsp = uc->uc_mcontext.gregs[REG_RSP];
    siglongjmp(again, 1);
}

extern char load_at[], store_at[], divide_at[], undefined_at[], breakpoint_at[], after_breakpoint[], general_at[],
    string_at[], push_at[];

// `r12` is only known where the instructions before the fault set it.
static void tell(const char *what, const void *expected_pc, const void *addr) {
    printf("%s: signal %d code %d pc %s addr %s trap %lld err %lld r12 %llx\n", what, seen_signal, seen_code,
           seen_rip == (greg_t)expected_pc ? "exact" : "WRONG", seen_addr == addr ? "as expected" : "other",
           (long long)seen_trap, (long long)seen_err, (long long)seen_r12);
}

__attribute__((noinline)) static void load(volatile char *p) {
    __asm__ volatile("movl $0x1234, %%r12d\nload_at: movb (%0), %%al" : : "r"(p) : "rax", "r12");
}
__attribute__((noinline)) static void store(volatile char *p) {
    __asm__ volatile("movl $0x1235, %%r12d\nstore_at: movb $1, (%0)" : : "r"(p) : "r12", "memory");
}

int main(void) {
    struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    for (int i = 0; i < 5; i++) sigaction(signals[i], &sa, NULL);

    if (!sigsetjmp(again, 1)) load((char *)8);
    tell("load from page 0", load_at, (void *)8);
    if (!sigsetjmp(again, 1)) store((char *)0xdead0000beefULL);
    tell("store to nowhere", store_at, (void *)0xdead0000beefULL);
    if (!sigsetjmp(again, 1)) load((char *)0x8000000000000000ULL);
    tell("load from a non-canonical address", load_at, NULL);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!sigsetjmp(again, 1)) store(page + 5);
    tell("store to a read-only page", store_at, page + 5);
    mprotect(page, 4096, PROT_NONE);
    if (!sigsetjmp(again, 1)) load(page + 6);
    tell("load from an inaccessible page", load_at, page + 6);
    if (!sigsetjmp(again, 1))
        __asm__ volatile("movl $0x1236, %%r12d\nxorl %%edx, %%edx\nmovl $7, %%eax\nxorl %%ecx, %%ecx\ndivide_at: divl %%ecx"
                         : : : "rax", "rcx", "rdx", "r12");
    tell("divide by zero", divide_at, divide_at);
    if (!sigsetjmp(again, 1)) __asm__ volatile("movl $0x1237, %%r12d\nundefined_at: ud2" : : : "r12");
    tell("undefined instruction", undefined_at, undefined_at);
    if (!sigsetjmp(again, 1)) __asm__ volatile("movl $0x1238, %%r12d\nbreakpoint_at: int3\nafter_breakpoint: nop" : : : "r12");
    tell("breakpoint", after_breakpoint, NULL);
    if (!sigsetjmp(again, 1)) __asm__ volatile("movl $0x1239, %%r12d\ngeneral_at: hlt" : : : "r12");
    tell("privileged instruction", general_at, NULL);

    // A string instruction that faults in the middle: count and pointers tell how far it got.
    char *two = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(two + 4096, 4096, PROT_NONE);
    if (!sigsetjmp(again, 1))
        __asm__ volatile("movl $0x1240, %%r12d\nmovq %0, %%rdi\nmovl $100, %%ecx\nmovb $0x5a, %%al\nstring_at: rep stosb"
                         : : "r"(two + 4096 - 10) : "rax", "rcx", "rdi", "r12", "memory");
    tell("rep stos into a guard page", string_at, two + 4096);
    printf("written before the fault: %d\n", two[4095] == 0x5a && two[4086] == 0x5a && two[4085] == 0);

    // A push that faults must leave the stack pointer alone.
    if (!sigsetjmp(again, 1)) {
        struct sigaction on_stack = sa;
        static char alternate[65536];
        stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
        sigaltstack(&stack, NULL);
        on_stack.sa_flags |= SA_ONSTACK;
        sigaction(SIGSEGV, &on_stack, NULL);
        __asm__ volatile("movl $0x1241, %%r12d\nmovq %%rsp, %%rbx\nmovq %0, %%rsp\npush_at: pushq %%rax"
                         : : "r"(two + 8192) : "rbx", "r12", "memory");
    }
    tell("push into a guard page", push_at, two + 8192 - 8);
    printf("stack pointer unchanged: %d\n", seen_rsp == (greg_t)(two + 8192));

    int fd = memfd_create("short", 0);
    if (ftruncate(fd, 100)) return 1;
    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!sigsetjmp(again, 1)) load(map + 4096 + 3);
    tell("load beyond the end of a file", load_at, map + 4096 + 3);

    // Execution of what is not code.
    void (*nowhere)(void) = (void (*)(void))0x10;
    if (!sigsetjmp(again, 1)) nowhere();
    seen_r12 = 0;
    tell("call of page 0", (void *)0x10, (void *)0x10);
    char *data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    data[0] = (char)0xc3;
    void (*not_code)(void) = (void (*)(void))data;
    if (!sigsetjmp(again, 1)) not_code();
    seen_r12 = 0;
    tell("call of data", data, data);
    return 0;
}
