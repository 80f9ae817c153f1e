// Pages that hold code and change: by stores, by system calls, through other mappings of the same memory, by moving.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, ALL = PROT_READ | PROT_WRITE | PROT_EXEC };
extern char **environ;

// mov eax, n; ret
static void put(unsigned char *at, int n) {
    unsigned char code[] = {0xb8, n, n >> 8, 0, 0, 0xc3};
    memcpy(at, code, sizeof code);
}
static int call(void *at) { return ((int (*)(void))at)(); }
static unsigned char *fresh(size_t size, int prot) {
    return mmap(NULL, size, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void stores(void) {
    unsigned char *p = fresh(2 * PAGE, ALL);
    put(p, 1);
    printf("first %d\n", call(p));
    madvise(p, PAGE, MADV_DONTNEED);
    put(p, 2);
    printf("after madvise %d\n", call(p));
    unsigned char *q = mremap(p, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    put(q, 3);
    printf("after mremap %d\n", call(q));
    printf("mprotect that fails %d\n", mprotect(q, PAGE, 0x4000000) == -1 ? errno : 0);
    put(q, 4);
    printf("after that %d\n", call(q));
    int sum = 0;
    for (int i = 0; i < 3000; i++) {
        mprotect(q, PAGE, PROT_READ | PROT_WRITE);
        put(q, i & 255);
        mprotect(q, PAGE, PROT_READ | PROT_EXEC);
        sum += call(q);
    }
    printf("written and executed in turn %d\n", sum);
}

static void aliases(void) {
    for (int private = 0; private < 2; private++) {
        int fd = memfd_create("code", 0);
        if (ftruncate(fd, 2 * PAGE)) return;
        unsigned char *w = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        unsigned char *x = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, private ? MAP_PRIVATE : MAP_SHARED, fd, PAGE);
        for (int i = 10; i < 13; i++) {
            put(w + PAGE, i);
            printf("%s %d\n", private ? "private" : "shared", call(x));
        }
        // A way to write that comes later.
        unsigned char *late = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PAGE);
        put(late, 20);
        printf("late %d\n", call(x));
        close(fd);
    }
    unsigned char *a = mmap(NULL, PAGE, ALL, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned char *b = mremap(a, 0, PAGE, MREMAP_MAYMOVE);
    put(a, 30);
    printf("twice %d", call(b));
    put(a, 31);
    printf(" %d", call(b));
    put(b, 32);
    printf(" %d\n", call(a));
}

// Calls that take something from the kernel and put it where code has run.
static void calls(void) {
    unsigned char *p = fresh(PAGE, ALL);
    unsigned char *out = p + 64;
#define RUN_CODE (put(p, 7), call(p))
    pid_t child = fork();
    if (child == 0) _exit(5);
    RUN_CODE;
    printf("wait4 %d", waitpid(child, (int *)out, 0) == child);
    printf(" status %d\n", WEXITSTATUS(*(int *)out));
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)) return;
    if (write(pair[0], "datagram", 8) != 8) return;
    RUN_CODE;
    ssize_t n = read(pair[1], out, 100);
    printf("read %zd %.8s\n", n, (char *)out);
    int event = eventfd(41, 0);
    RUN_CODE;
    n = read(event, out, 8);
    printf("eventfd %zd %lu\n", n, *(unsigned long *)out);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    RUN_CODE;
    printf("sigwaitinfo %d\n", sigwaitinfo(&set, (siginfo_t *)out));
    printf("code %d\n", call(p));
}

static sigjmp_buf again;
static unsigned char *base;
static void told(int signo, siginfo_t *info, void *context) {
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    printf(" signal %d code %d address +%ld pc +%ld\n", signo, info->si_code, (long)((unsigned char *)info->si_addr - base),
           (long)((unsigned char *)regs[REG_RIP] - base));
    siglongjmp(again, 1);
}

// Instructions that begin on a page with code and go on where there is none.
static void edges(void) {
    struct sigaction sa = {.sa_sigaction = told, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &sa, NULL);
    sigaction(SIGILL, &sa, NULL);
    for (volatile int kind = 0; kind < 3; kind++) {
        base = fresh(2 * PAGE, ALL);
        memset(base, 0x90, PAGE);
        base[PAGE - 6] = 0x48, base[PAGE - 5] = 0xb8; // mov rax, imm64
        mprotect(base, PAGE, PROT_READ | PROT_EXEC);
        if (kind == 0) munmap(base + PAGE, PAGE);
        if (kind == 1) mprotect(base + PAGE, PAGE, PROT_NONE);
        if (kind == 2) mprotect(base + PAGE, PAGE, PROT_READ);
        printf("from its start");
        if (sigsetjmp(again, 1) == 0) call(base + PAGE - 6);
        printf("from before");
        if (sigsetjmp(again, 1) == 0) call(base + PAGE - 50);
        printf("right behind the page");
        if (sigsetjmp(again, 1) == 0) call(base + PAGE);
    }
    // The rest comes, and the instruction is retried.
    base = fresh(2 * PAGE, ALL);
    base[PAGE - 1] = 0xb8;
    munmap(base + PAGE, PAGE);
    printf("not there");
    if (sigsetjmp(again, 1) == 0) call(base + PAGE - 1);
    mmap(base + PAGE, PAGE, ALL, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    base[PAGE] = 77, base[PAGE + 4] = 0xc3;
    printf("there %d\n", call(base + PAGE - 1));
}

extern char branch_call[], branch_jmp[], branch_ret[], stack_before[];
__asm__(".text\n"
        "do_call: mov %rsp, stack_before(%rip)\nbranch_call: call *%rdi\nret\n"
        "do_jmp: mov %rsp, stack_before(%rip)\nbranch_jmp: jmp *%rdi\n"
        "do_ret: push %rdi\nmov %rsp, stack_before(%rip)\nbranch_ret: ret\n"
        ".bss\nstack_before: .quad 0\n.text\n");
void do_call(uint64_t), do_jmp(uint64_t), do_ret(uint64_t);

static void branch(int signo, siginfo_t *info, void *context) {
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    char *pc = (char *)regs[REG_RIP];
    const char *where = pc == branch_call ? "call" : pc == branch_jmp ? "jmp" : pc == branch_ret ? "ret" : "target";
    printf(" signal %d code %d address %p at the %s, stack %+ld, trap %lld\n", signo, info->si_code, info->si_addr, where,
           (long)(regs[REG_RSP] - *(greg_t *)stack_before), (long long)regs[REG_TRAPNO]);
    siglongjmp(again, 1);
}

// Branches to what is no address fault themselves.
static void wild(void) {
    struct sigaction sa = {.sa_sigaction = branch, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &sa, NULL);
    uint64_t targets[] = {0x8000000000001234, 0x0000800000000000, 0x4141414141414141, 0xffff7fffffffffff};
    void (*how[])(uint64_t) = {do_call, do_jmp, do_ret};
    for (int t = 0; t < 4; t++)
        for (int h = 0; h < 3; h++)
            if (sigsetjmp(again, 1) == 0) how[h](targets[t]);
}

static volatile int stop;
static void *change_code(void *arg) {
    (void)arg;
    unsigned char *p = fresh(PAGE, ALL);
    for (int i = 0; !stop; i++) {
        unsigned char *at = p + i % 64 * 64;
        put(at, i & 255);
        if (call(at) != (i & 255)) abort();
    }
    return NULL;
}

// Processes are started while another thread makes new code all the time.
static void spawns(void) {
    pthread_t other;
    pthread_create(&other, NULL, change_code, NULL);
    int good = 0;
    for (int i = 0; i < 40; i++) {
        pid_t p;
        char *argv[] = {"true", NULL};
        int status = -1;
        if (posix_spawn(&p, "/bin/true", NULL, NULL, argv, environ) == 0) waitpid(p, &status, 0);
        good += status == 0;
    }
    stop = 1;
    pthread_join(other, NULL);
    pid_t p;
    char *argv[] = {"none", NULL};
    printf("%d started, missing: %s\n", good, strerror(posix_spawn(&p, "/no/such/program", NULL, NULL, argv, environ)));
}

int main(int argc, char **argv) {
    struct { const char *name; void (*run)(void); } parts[] = {
        {"stores", stores}, {"aliases", aliases}, {"calls", calls}, {"edges", edges}, {"wild", wild}, {"spawns", spawns},
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc > 1 && strcmp(argv[1], parts[i].name) == 0) return parts[i].run(), 0;
    fprintf(stderr, "codepages: no such part\n");
    return 2;
}
