/* Starting a program under ptrace, and what both jobs of the stepper need to look into it. */
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

