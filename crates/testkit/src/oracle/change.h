/* Altering a program: a breakpoint counts executions of one instruction; at the n-th the change is made. */

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

