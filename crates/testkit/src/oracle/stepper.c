/* The ptrace half of the oracle: runs a program natively without address randomisation, and either steps through it
 * instruction by instruction (`trace`) or alters it once and lets it run on (`alter`).
 *
 * It decides nothing: it writes down raw machine states, and the Rust side decodes and judges them.
 * It is C because the full vector state (PTRACE_GETREGSET with NT_X86_XSTATE) is out of reach of safe Rust wrappers.
 *
 * stepper trace OUT RSP ENTRY LO HI PROGRAM ARGS...   records on stdout (format: `put_*` below), guest stdout in file OUT
 *     the stack pointer at the entry is made equal to RSP modulo a page, by padding the environment
 * stepper alter RESULT BUDGET_MS ASLR ENTRY SITE N ACTION PROGRAM ARGS...
 *     ACTION: flip:TAKEN:FALL | skip:TO | reg:NUMBER:VALUE | mem:AT:HEXBYTES | none
 *     guest stdout is our stdout; RESULT gets one line
 * ENTRY, LO, HI, SITE, TAKEN, FALL, TO and AT are addresses as linked: the load bias is added here. All hexadecimal.
 *
 * Guarantee: in `trace` each completed instruction inside [LO, HI) or inside anonymous executable memory that the
 * program mapped is written exactly once, in the order of its thread, with the state before it.
 * A `rep` string instruction traps after every iteration, so it gives one record per iteration.
 * A faulting instruction is not completed and gives no record, only the signal.
 * Misses: what happens before ENTRY (the dynamic linker), and instructions outside the ranges. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct user_regs_struct Regs;

static void die(const char *what) {
    fprintf(stderr, "stepper: %s: %s\n", what, strerror(errno));
    exit(99);
}

/* ---- starting ---- */

/* Hides the vDSO from a program that has not run yet: it is none of the program's own code, and with one library less
 * the dynamic linker's stack frames are those of a program under Clew, which has no vDSO either. */
static void hide_vdso(pid_t pid) {
    Regs r;
    if (ptrace(PTRACE_GETREGS, pid, 0, &r) < 0) die("PTRACE_GETREGS");
    uint64_t at = r.rsp + 8 * (1 + (uint64_t)ptrace(PTRACE_PEEKDATA, pid, r.rsp, 0) + 1);
    while (ptrace(PTRACE_PEEKDATA, pid, at, 0)) at += 8;
    for (at += 8;; at += 16) {
        long type = ptrace(PTRACE_PEEKDATA, pid, at, 0);
        if (type == AT_NULL) return;
        if (type == AT_SYSINFO_EHDR && ptrace(PTRACE_POKEDATA, pid, at, AT_IGNORE) < 0) die("PTRACE_POKEDATA");
    }
}

static pid_t start(const char *out, int aslr, char **argv, char **env) {
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (out) {
            int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (fd < 0 || dup2(fd, 1) < 0) die("guest output");
            close(fd);
        }
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (!aslr && personality(ADDR_NO_RANDOMIZE) < 0) die("personality");
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0) die("PTRACE_TRACEME");
        raise(SIGSTOP);
        execve(argv[0], argv, env);
        die("execve");
    }
    int st;
    if (waitpid(pid, &st, 0) != pid || !WIFSTOPPED(st)) die("first stop");
    long opts = PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, pid, 0, opts) < 0) die("PTRACE_SETOPTIONS");
    if (ptrace(PTRACE_CONT, pid, 0, 0) < 0) die("cont to exec");
    if (waitpid(pid, &st, 0) != pid || !WIFSTOPPED(st) || st >> 16 != PTRACE_EVENT_EXEC) die("exec stop");
    hide_vdso(pid);
    return pid;
}

/* Load bias: where the program's entry is, less where it was linked. */
static uint64_t bias_of(pid_t pid, uint64_t entry) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/auxv", pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0) die(path);
    Elf64_auxv_t a;
    while (read(fd, &a, sizeof a) == sizeof a)
        if (a.a_type == AT_ENTRY) {
            close(fd);
            return a.a_un.a_val - entry;
        }
    die("no AT_ENTRY");
    return 0;
}

static void regs_of(pid_t tid, Regs *r) {
    if (ptrace(PTRACE_GETREGS, tid, 0, r) < 0) die("PTRACE_GETREGS");
}
static void set_regs(pid_t tid, Regs *r) {
    if (ptrace(PTRACE_SETREGS, tid, 0, r) < 0) die("PTRACE_SETREGS");
}
static void poke_byte(pid_t pid, uint64_t at, uint8_t b) {
    errno = 0;
    long w = ptrace(PTRACE_PEEKTEXT, pid, at, 0);
    if (w == -1 && errno) die("PTRACE_PEEKTEXT");
    w = (w & ~0xffL) | b;
    if (ptrace(PTRACE_POKETEXT, pid, at, w) < 0) die("PTRACE_POKETEXT");
}
static uint8_t peek_byte(pid_t pid, uint64_t at) {
    errno = 0;
    long w = ptrace(PTRACE_PEEKTEXT, pid, at, 0);
    if (w == -1 && errno) die("PTRACE_PEEKTEXT");
    return (uint8_t)w;
}

/* Runs until `at` with a breakpoint; the program must get there without signals or threads. */
static void run_to(pid_t pid, uint64_t at) {
    uint8_t old = peek_byte(pid, at);
    poke_byte(pid, at, 0xcc);
    if (ptrace(PTRACE_CONT, pid, 0, 0) < 0) die("cont to entry");
    int st;
    if (waitpid(pid, &st, 0) != pid || !WIFSTOPPED(st) || WSTOPSIG(st) != SIGTRAP) die("did not reach the entry");
    poke_byte(pid, at, old);
    Regs r;
    regs_of(pid, &r);
    r.rip = at;
    set_regs(pid, &r);
}

/* ---- trace: records, each a tag byte and packed little-endian fields ---- */

static void put(const void *p, size_t n) {
    if (fwrite(p, 1, n, stdout) != n) die("writing records");
}
static void put_u8(uint8_t v) { put(&v, 1); }
static void put_u32(uint32_t v) { put(&v, 4); }
static void put_u64(uint64_t v) { put(&v, 8); }

/* 'M': the text of /proc/PID/maps at the entry. */
static void put_maps(pid_t pid) {
    char path[64], buf[65536];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0) die(path);
    size_t n = 0;
    for (ssize_t k; n < sizeof buf && (k = read(fd, buf + n, sizeof buf - n)) > 0;) n += (size_t)k;
    close(fd);
    put_u8('M');
    put_u32((uint32_t)n);
    put(buf, n);
}

/* 'V': vector state for the next 'I': 32 ZMM of 64 bytes, 8 mask registers, 8 MMX registers. */
static unsigned offset_of_component(unsigned i) {
    unsigned a, b, c, d;
    return __get_cpuid_count(0xd, i, &a, &b, &c, &d) ? b : 0;
}
static void put_vectors(pid_t tid) {
    static uint8_t area[1 << 16];
    static unsigned avx, opmask, hi256, hi16;
    if (!avx) {
        avx = offset_of_component(2), opmask = offset_of_component(5);
        hi256 = offset_of_component(6), hi16 = offset_of_component(7);
    }
    struct iovec io = {area, sizeof area};
    memset(area, 0, sizeof area);
    if (ptrace(PTRACE_GETREGSET, tid, (void *)(uintptr_t)NT_X86_XSTATE, &io) < 0) die("NT_X86_XSTATE");
    put_u8('V');
    static const uint8_t zero[64];
    for (unsigned i = 0; i < 32; i++) {
        if (i < 16) {
            put(area + 160 + 16 * i, 16);
            put(avx ? area + avx + 16 * i : zero, 16);
            put(hi256 ? area + hi256 + 32 * i : zero, 32);
        } else {
            put(hi16 ? area + hi16 + 64 * (i - 16) : zero, 64);
        }
    }
    for (unsigned i = 0; i < 8; i++) put(opmask ? area + opmask + 8 * i : zero, 8);
    for (unsigned i = 0; i < 8; i++) put(area + 32 + 16 * i, 8);
}

/* 'I': a completed instruction: thread, rax..r15 in hardware order, rip, rflags, fs and gs base, 16 bytes of code. */
static void put_insn(uint32_t thread, const Regs *r, const uint8_t code[16]) {
    uint64_t g[] = {r->rax, r->rcx, r->rdx, r->rbx, r->rsp, r->rbp, r->rsi, r->rdi, r->r8,      r->r9,
                    r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rip, r->eflags, r->fs_base, r->gs_base};
    put_u8('I');
    put_u32(thread);
    put(g, sizeof g);
    put(code, 16);
}

/* 'S': a completed system call: thread, number, six arguments, result. */
static void put_syscall(uint32_t thread, const Regs *r) {
    uint64_t v[] = {r->orig_rax, r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9, r->rax};
    put_u8('S');
    put_u32(thread);
    put(v, sizeof v);
}

/* 'G': a signal is about to be delivered: thread, number, interrupted pc. */
static void put_signal(uint32_t thread, uint32_t signo, uint64_t pc) {
    put_u8('G');
    put_u32(thread);
    put_u32(signo);
    put_u64(pc);
}

/* 'E': the end, with the wait status of the program. */
static void put_end(uint32_t status) {
    put_u8('E');
    put_u32(status);
}

/* ---- trace: the loop ---- */

#define MAX_THREADS 256
#define MAX_RANGES 64
typedef struct {
    pid_t tid;
    int known;   /* its creation was announced, so `index` is right */
    int stopped; /* waits in its first stop for that */
    int live;
    uint32_t index;
    Regs before;
    uint8_t code[16];
    int traced, vectors;
} Thread;

static Thread threads[MAX_THREADS];
static uint32_t made;
static struct { uint64_t lo, hi; } ranges[MAX_RANGES];
static unsigned nranges;

static Thread *thread(pid_t tid) {
    Thread *free_slot = 0;
    for (int i = 0; i < MAX_THREADS; i++) {
        if (threads[i].live && threads[i].tid == tid) return &threads[i];
        if (!threads[i].live && !free_slot) free_slot = &threads[i];
    }
    if (!free_slot) die("too many threads");
    memset(free_slot, 0, sizeof *free_slot);
    free_slot->tid = tid, free_slot->live = 1;
    return free_slot;
}

static int traced(uint64_t pc) {
    for (unsigned i = 0; i < nranges; i++)
        if (pc >= ranges[i].lo && pc < ranges[i].hi) return 1;
    return 0;
}

/* Does the instruction perhaps take addresses or masks from vector registers? VEX, EVEX, and maskmov (0f f7). */
static int needs_vectors(const uint8_t *c) {
    int i = 0;
    while (i < 14 && (c[i] == 0x66 || c[i] == 0x67 || c[i] == 0xf2 || c[i] == 0xf3 || c[i] == 0x2e || c[i] == 0x36 ||
                      c[i] == 0x3e || c[i] == 0x26 || c[i] == 0x64 || c[i] == 0x65))
        i++;
    if (i < 14 && (c[i] & 0xf0) == 0x40) i++;
    return c[i] == 0xc4 || c[i] == 0xc5 || c[i] == 0x62 || (c[i] == 0x0f && c[i + 1] == 0xf7);
}

/* Takes down what the next instruction will be. */
static void look(Thread *t) {
    regs_of(t->tid, &t->before);
    memset(t->code, 0, 16);
    t->traced = traced(t->before.rip);
    t->vectors = 0;
    if (!t->traced) return;
    const size_t want = 16;
    /* Two parts, because the page after the instruction need not be mapped. */
    size_t first = 4096 - (t->before.rip & 4095);
    if (first > want) first = want;
    struct iovec local = {t->code, first}, remote = {(void *)t->before.rip, first};
    ssize_t got = process_vm_readv(t->tid, &local, 1, &remote, 1, 0);
    if (got == (ssize_t)first && first < want) {
        local = (struct iovec){t->code + first, want - first};
        remote = (struct iovec){(void *)(t->before.rip + first), want - first};
        process_vm_readv(t->tid, &local, 1, &remote, 1, 0);
    }
    t->vectors = needs_vectors(t->code);
}

static void step(Thread *t, int sig) {
    /* The vector state has to be taken before the step, but may be written only once the step is known to complete;
     * an instruction that faults is looked at again, so writing it now at worst leaves a 'V' that the next replaces. */
    if (t->vectors) put_vectors(t->tid), put_u32(t->index);
    if (ptrace(PTRACE_SINGLESTEP, t->tid, 0, sig) < 0 && errno != ESRCH) die("PTRACE_SINGLESTEP");
}

static void completed(Thread *t) {
    Regs now;
    regs_of(t->tid, &now);
    if (t->traced) put_insn(t->index, &t->before, t->code);
    /* orig_rax is only set where the kernel was entered by a system call; the other arguments survive one. */
    if ((int64_t)now.orig_rax < 0) return;
    put_syscall(t->index, &now);
    int anonymous_code = now.orig_rax == SYS_mmap && (now.rdx & PROT_EXEC) && (now.r10 & MAP_ANONYMOUS);
    if (anonymous_code && now.rax < (uint64_t)-4096 && nranges < MAX_RANGES) {
        ranges[nranges].lo = now.rax;
        ranges[nranges++].hi = now.rax + now.rsi;
    }
}

static void begin(Thread *t) {
    t->known = 1;
    t->index = made++;
    if (t->stopped) look(t), step(t, 0);
}

static void on_stop(pid_t tid, int st) {
    Thread *t = thread(tid);
    int sig = WSTOPSIG(st);
    if (st >> 16 == PTRACE_EVENT_CLONE) {
        unsigned long child = 0;
        ptrace(PTRACE_GETEVENTMSG, tid, 0, &child);
        begin(thread((pid_t)child));
        /* The system call of the parent goes on; the state before it stays as it is. */
        t->vectors = 0;
        step(t, 0);
        return;
    }
    if (!t->known) {
        t->stopped = 1;
        return;
    }
    siginfo_t info;
    memset(&info, 0, sizeof info);
    ptrace(PTRACE_GETSIGINFO, tid, 0, &info);
    if (sig == SIGTRAP && info.si_code == SIGTRAP) {
        /* Entry of a signal handler: nothing has been executed. */
        look(t), step(t, 0);
    } else if (sig == SIGTRAP) {
        completed(t);
        look(t), step(t, 0);
    } else if (sig == SIGSTOP && !t->stopped && t->index != 0) {
        /* The stop every new thread starts with, when its announcement came first. */
        t->stopped = 1;
        look(t), step(t, 0);
    } else {
        put_signal(t->index, (uint32_t)sig, t->before.rip);
        t->vectors = 0;
        step(t, sig);
    }
}

/* Starts the program with such an environment that its stack pointer at the entry is `rsp` modulo a page: code that
 * aligns its frames then does so by the same amount wherever the stack lies. */
static pid_t start_aligned(const char *out, uint64_t rsp, char **argv) {
    static char pad[4096 + 8] = "PAD=";
    char *env[] = {pad, 0};
    Regs r;
    for (int round = 0;; round++) {
        pid_t pid = start(out, 0, argv, env);
        regs_of(pid, &r);
        uint64_t excess = (r.rsp - rsp) & 4095;
        if (excess == 0 || round == 3) return pid;
        kill(pid, SIGKILL);
        while (waitpid(pid, 0, __WALL) == pid) {}
        /* Each further byte of text lowers the stack by one, rounded down to 16. */
        size_t length = (strlen(pad) - 4 + excess) & 4095;
        memset(pad + 4, 'x', length);
        pad[4 + length] = 0;
    }
}

static int trace(char **a) {
    const char *out = a[0];
    uint64_t rsp = strtoull(a[1], 0, 16);
    a++;
    uint64_t entry = strtoull(a[1], 0, 16);
    pid_t pid = start_aligned(out, rsp, a + 4);
    uint64_t bias = bias_of(pid, entry);
    ranges[0].lo = strtoull(a[2], 0, 16) + bias;
    ranges[0].hi = strtoull(a[3], 0, 16) + bias;
    nranges = 1;
    run_to(pid, entry + bias);
    put_maps(pid);
    Thread *t = thread(pid);
    t->stopped = 1;
    begin(t);
    uint32_t status = 0;
    for (;;) {
        int st;
        pid_t tid = waitpid(-1, &st, __WALL);
        if (tid < 0) {
            if (errno == EINTR) continue;
            break;
        }
        if (WIFSTOPPED(st)) {
            on_stop(tid, st);
            continue;
        }
        Thread *gone = thread(tid);
        /* The system call that ends a thread never returns, so this is all the completion it has. */
        int in_call = gone->code[0] == 0x0f && gone->code[1] == 0x05;
        if (WIFEXITED(st) && gone->known && gone->traced && in_call) put_insn(gone->index, &gone->before, gone->code);
        gone->live = 0;
        if (tid == pid) status = (uint32_t)st;
    }
    put_end(status);
    return fflush(stdout) ? 99 : 0;
}

/* ---- alter ---- */

static pid_t watched;
static double cpu_budget, wall_end;
static volatile sig_atomic_t ran_away;

static double now_in(clockid_t clock) {
    struct timespec t = {0, 0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static double cpu_of(pid_t pid) {
    clockid_t clock;
    return clock_getcpuclockid(pid, &clock) ? 0 : now_in(clock);
}
/* Processor time decides, so that a busy machine changes nothing; wall time is the backstop for what blocks. */
static void on_tick(int sig) {
    (void)sig;
    if (ran_away || (cpu_of(watched) < cpu_budget && now_in(CLOCK_MONOTONIC) < wall_end)) return;
    ran_away = 1;
    kill(watched, SIGKILL);
}
static void watch(pid_t pid, double budget) {
    watched = pid;
    cpu_budget = cpu_of(pid) + budget;
    wall_end = now_in(CLOCK_MONOTONIC) + 20 * budget;
    struct sigaction sa = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &sa, 0);
    struct itimerval it = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &it, 0);
}

/* Waits for a stop of the only thread; returns 0 when the program has ended. */
static int wait_stop(pid_t pid, int *st) {
    while (waitpid(pid, st, 0) < 0)
        if (errno != EINTR) die("waitpid");
    return WIFSTOPPED(*st);
}

/* Executes the one instruction at the pc; signals that arrive meanwhile are delivered. 0: the program has ended. */
static int step_one(pid_t pid, int *st) {
    Regs r, n;
    regs_of(pid, &r);
    int sig = 0;
    for (;;) {
        if (ptrace(PTRACE_SINGLESTEP, pid, 0, sig) < 0) die("PTRACE_SINGLESTEP");
        if (!wait_stop(pid, st)) return 0;
        sig = WSTOPSIG(*st) == SIGTRAP ? 0 : WSTOPSIG(*st);
        regs_of(pid, &n);
        if (sig == 0) return 1;
    }
}

static uint64_t *gpr(Regs *r, unsigned n) {
    unsigned long long *p[] = {&r->rax, &r->rcx, &r->rdx, &r->rbx, &r->rsp, &r->rbp, &r->rsi, &r->rdi, &r->r8,
                               &r->r9,  &r->r10, &r->r11, &r->r12, &r->r13, &r->r14, &r->r15, &r->eflags};
    return (uint64_t *)p[n % 17];
}

/* Makes the change at the breakpoint (already lifted, rip at the site). 0: the program has ended. */
static int apply(pid_t pid, const char *action, uint64_t bias, int *st) {
    Regs r;
    uint64_t a = 0, b = 0;
    unsigned number = 0;
    int at = 0;
    regs_of(pid, &r);
    if (sscanf(action, "flip:%" SCNx64 ":%" SCNx64, &a, &b) == 2) {
        a += bias, b += bias;
        if (!step_one(pid, st)) return 0;
        regs_of(pid, &r);
        if (r.rip != a && r.rip != b) die("the branch went to neither successor");
        r.rip = r.rip == a ? b : a;
        set_regs(pid, &r);
    } else if (sscanf(action, "skip:%" SCNx64, &a) == 1) {
        r.rip = a + bias;
        set_regs(pid, &r);
    } else if (sscanf(action, "reg:%u:%" SCNx64, &number, &a) == 2) {
        *gpr(&r, number) = a;
        set_regs(pid, &r);
    } else if (sscanf(action, "mem:%" SCNx64 ":%n", &a, &at) == 1 && at) {
        for (const char *h = action + at; h[0] && h[1]; h += 2) {
            unsigned byte;
            if (sscanf(h, "%2x", &byte) != 1) die("hex bytes");
            poke_byte(pid, bias + a++, (uint8_t)byte);
        }
    } else if (strcmp(action, "none")) {
        errno = EINVAL;
        die(action);
    }
    return 1;
}

/* Runs to the n-th execution of the site. 0: the program ended first. */
static int run_to_instance(pid_t pid, uint64_t site, uint64_t n, int *st) {
    uint8_t old = peek_byte(pid, site);
    int sig = 0;
    for (uint64_t hits = 0;;) {
        poke_byte(pid, site, 0xcc);
        if (ptrace(PTRACE_CONT, pid, 0, sig) < 0) die("PTRACE_CONT");
        if (!wait_stop(pid, st)) return 0;
        Regs r;
        regs_of(pid, &r);
        int ours = WSTOPSIG(*st) == SIGTRAP && r.rip == site + 1;
        sig = ours || WSTOPSIG(*st) == SIGTRAP ? 0 : WSTOPSIG(*st);
        if (!ours) continue;
        poke_byte(pid, site, old);
        r.rip = site;
        set_regs(pid, &r);
        if (++hits == n) return 1;
        /* A rep string instruction at the site is one execution, however many iterations it steps through. */
        do {
            if (!step_one(pid, st)) return 0;
            regs_of(pid, &r);
        } while (r.rip == site && (old == 0xf2 || old == 0xf3));
    }
}

static int alter(char **a) {
    const char *result = a[0], *action = a[6];
    double budget = 1e-3 * strtod(a[1], 0);
    int aslr = atoi(a[2]);
    uint64_t entry = strtoull(a[3], 0, 16), n = strtoull(a[5], 0, 10);
    char *env[] = {0};
    pid_t pid = start(0, aslr, a + 7, env);
    uint64_t bias = bias_of(pid, entry), site = strtoull(a[4], 0, 16) + bias;
    int st = 0, applied = 0;
    /* Counting the instances takes long and is not the program's doing, so this part has its own budget. */
    watch(pid, 60);
    run_to(pid, entry + bias);
    int alive = run_to_instance(pid, site, n, &st);
    if (alive) {
        applied = 1;
        alive = apply(pid, action, bias, &st);
    }
    double used = 0;
    if (alive) {
        watch(pid, budget);
        double before = cpu_budget - budget;
        if (ptrace(PTRACE_DETACH, pid, 0, 0) < 0) die("PTRACE_DETACH");
        /* WNOWAIT, so that the processor time of the dead can still be read. */
        siginfo_t info;
        while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {}
        used = cpu_of(pid) - before;
        while (waitpid(pid, &st, 0) < 0 && errno == EINTR) {}
    }
    FILE *f = fopen(result, "w");
    if (!f) die(result);
    fprintf(f, "applied %d ran_away %d status %d cpu_us %.0f\n", applied, (int)ran_away, st, 1e6 * used);
    return fclose(f) ? 99 : 0;
}

int main(int argc, char **argv) {
    if (argc > 7 && !strcmp(argv[1], "trace")) return trace(argv + 2);
    if (argc > 9 && !strcmp(argv[1], "alter")) return alter(argv + 2);
    fprintf(stderr, "stepper: see the head of stepper.c\n");
    return 98;
}
