/* Stepping through a program: every thread one instruction at a time, all of them at once, as blocking calls need. */

/* ---- records, each a tag byte and packed little-endian fields ---- */

static void put(const void *p, size_t n) {
    if (fwrite(p, 1, n, stdout) != n) die("writing records");
}
static void put_u8(uint8_t v) { put(&v, 1); }
static void put_u32(uint32_t v) { put(&v, 4); }
static void put_u64(uint64_t v) { put(&v, 8); }

/* 'M': the text of /proc/PID/maps at the entry, and where the strings of arguments and environment begin. */
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
    Regs r;
    regs_of(pid, &r);
    put_u64((uint64_t)ptrace(PTRACE_PEEKDATA, pid, r.rsp + 8, 0));
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

/* ---- the loop ---- */

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

