// Child processes and new images: fork, vfork, posix_spawn, execve and its relatives. The argument selects the part.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void show(const char *what, int status) {
    if (WIFEXITED(status)) printf("%s: exit %d\n", what, WEXITSTATUS(status));
    else if (WIFSIGNALED(status)) printf("%s: signal %d\n", what, WTERMSIG(status));
    else if (WIFSTOPPED(status)) printf("%s: stopped %d\n", what, WSTOPSIG(status));
    else printf("%s: status %x\n", what, status);
    fflush(stdout);
}

static int wait_for(pid_t pid) {
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

static void forks(void) {
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int private = 1;
    for (int i = 0; i < 5; i++) {
        pid_t p = fork();
        if (p == 0) {
            private += 100;
            shared[i] = private + i;
            if (i == 3) raise(SIGTERM);
            if (i == 4) abort();
            _exit(10 + i);
        }
        show("child", wait_for(p));
    }
    printf("private %d shared %d %d %d\n", private, shared[0], shared[1], shared[2]);
    pid_t p = fork();
    if (p == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) _exit(5);
        _exit(WEXITSTATUS(wait_for(grandchild)) + 1);
    }
    show("grandchild plus one", wait_for(p));
    errno = 0;
    int r = waitpid(-1, NULL, WNOHANG);
    printf("no children: %d %s\n", r, strerror(errno));
}

static void vforks(void) {
    volatile int value = 1;
    pid_t p = vfork();
    if (p == 0) {
        value = 2;
        _exit(3);
    }
    show("vfork", wait_for(p));
    printf("the child's write is seen: %d\n", value);
    p = vfork();
    if (p == 0) {
        execl("/bin/sh", "sh", "-c", "exit 9", (char *)NULL);
        _exit(127);
    }
    show("vfork and exec", wait_for(p));
    volatile int failed = 0;
    p = vfork();
    if (p == 0) {
        execl("/nonexistent/program", "program", (char *)NULL);
        failed = errno;
        _exit(127);
    }
    show("vfork and failed exec", wait_for(p));
    printf("error seen by the parent: %s\n", strerror(failed));
}

static void spawns(void) {
    pid_t p = 0;
    char *missing[] = {"missing", NULL}, *shell[] = {"sh", "-c", "echo spawned; exit 4", NULL}, *cat[] = {"cat", NULL};
    printf("missing file: %s\n", strerror(posix_spawn(&p, "/nonexistent/missing", NULL, NULL, missing, environ)));
    printf("missing in PATH: %s\n", strerror(posix_spawnp(&p, "no-such-program-here", NULL, NULL, missing, environ)));
    printf("directory: %s\n", strerror(posix_spawn(&p, "/tmp", NULL, NULL, missing, environ)));
    printf("not executable: %s\n", strerror(posix_spawn(&p, "/etc/passwd", NULL, NULL, missing, environ)));
    fflush(stdout);
    printf("found: %s\n", strerror(posix_spawnp(&p, "sh", NULL, NULL, shell, environ)));
    show("spawned", wait_for(p));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/no/such/input", O_RDONLY, 0);
    printf("bad file action: %s\n", strerror(posix_spawnp(&p, "cat", &actions, NULL, cat, environ)));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned.txt", O_WRONLY | O_CREAT, 0640);
    posix_spawnattr_t attr;
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attr, &none);
    printf("with actions: %s\n", strerror(posix_spawnp(&p, "cat", &actions, &attr, cat, environ)));
    show("spawned with actions", wait_for(p));
    printf("system: %d\n", WEXITSTATUS(system("exit 6")));
    FILE *f = popen("echo from popen; exit 3", "r");
    char line[64] = "";
    if (!fgets(line, sizeof line, f)) return;
    printf("%s", line);
    printf("pclose: %d\n", WEXITSTATUS(pclose(f)));
}

static void exec_each(void) {
    char *args[] = {"sh", "-c", "echo \"$0 $1 $AGREE_X\"", "zero", "one", NULL};
    char *env[] = {"AGREE_X=from-exec", "PATH=/usr/bin:/bin", NULL};
    for (int i = 0; i < 6; i++) {
        fflush(stdout);
        pid_t p = fork();
        if (p == 0) {
            int fd = open("/bin/sh", O_PATH | O_CLOEXEC), dir = open("/bin", O_PATH | O_DIRECTORY | O_CLOEXEC);
            switch (i) {
            case 0: execve("/bin/sh", args, env); break;
            case 1: execvpe("sh", args, env); break;
            case 2: fexecve(fd, args, env); break;
            case 3: syscall(SYS_execveat, dir, "sh", args, env, 0); break;
            case 4: syscall(SYS_execveat, fd, "", args, env, AT_EMPTY_PATH); break;
            case 5: execve("/nonexistent", args, env); break;
            }
            _exit(100 + errno);
        }
        show("exec", wait_for(p));
    }
    // A script is run by its interpreter, with the optional argument in one piece.
    int fd = open("script", O_WRONLY | O_CREAT, 0755);
    const char *text = "#!/bin/sh -e\necho script \"$0\" \"$@\"\nfalse\necho not reached\n";
    if (write(fd, text, strlen(text)) < 0) return;
    close(fd);
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        execl("./script", "ignored", "a b", "c", (char *)NULL);
        _exit(100 + errno);
    }
    show("script", wait_for(p));
    fd = open("bad-script", O_WRONLY | O_CREAT, 0755);
    if (write(fd, "#!/no/such/interpreter\n", 23) < 0) return;
    close(fd);
    p = fork();
    if (p == 0) {
        execl("./bad-script", "x", (char *)NULL);
        _exit(100 + errno);
    }
    show("script without interpreter", wait_for(p));
    fd = open("text", O_WRONLY | O_CREAT, 0755);
    if (write(fd, "echo plain text\n", 16) < 0) return;
    close(fd);
    p = fork();
    if (p == 0) {
        execl("./text", "x", (char *)NULL);
        _exit(100 + errno);
    }
    show("text is not a program", wait_for(p));
}

static void inheritance(void) {
    // What an image inherits: ignored signals, blocked signals, descriptors without close-on-exec, directory, limits.
    signal(SIGHUP, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (dup2(1, 77) != 77) return;
    int closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)closed;
    struct rlimit few = {200, 200};
    setrlimit(RLIMIT_NOFILE, &few);
    if (chdir("/")) return;
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        execlp("grep", "grep", "-E", "SigBlk|SigIgn", "/proc/self/status", (char *)NULL);
        _exit(127);
    }
    show("grep", wait_for(p));
    p = fork();
    if (p == 0) {
        execlp("ls", "ls", "/proc/self/fd", (char *)NULL);
        _exit(127);
    }
    show("ls", wait_for(p));
    execl("/bin/sh", "sh", "-c", "pwd; ulimit -n", (char *)NULL);
}

static volatile sig_atomic_t children;
static void on_child(int signo) { (void)signo; children++; }

static void stops(void) {
    signal(SIGCHLD, on_child);
    // The child waits for a word after it has been continued: otherwise it may have ended before that is seen.
    int word[2];
    if (pipe(word)) return;
    pid_t p = fork();
    if (p == 0) {
        char c;
        raise(SIGSTOP);
        _exit(read(word[0], &c, 1) == 1 ? 8 : 9);
    }
    int status;
    waitpid(p, &status, WUNTRACED);
    show("stop", status);
    kill(p, SIGCONT);
    waitpid(p, &status, WCONTINUED);
    printf("continued %d\n", WIFCONTINUED(status) ? 1 : 0);
    if (write(word[1], "x", 1) != 1) return;
    waitpid(p, &status, 0);
    show("end", status);
    printf("SIGCHLD seen: %d\n", children > 0);
    p = fork();
    if (p == 0)
        for (;;) pause();
    kill(p, SIGKILL);
    siginfo_t info;
    waitid(P_PID, p, &info, WEXITED);
    printf("waitid: killed %d status %d\n", info.si_code == CLD_KILLED, info.si_status);
}

static char clone_stack[65536] __attribute__((aligned(16)));
static int clone_value;
static int clone_child(void *arg) {
    clone_value = 55;
    return *(int *)arg;
}

static void clones(void) {
    int arg = 21;
    int p = clone(clone_child, clone_stack + sizeof clone_stack, SIGCHLD, &arg);
    show("clone without shared memory", wait_for(p));
    printf("value %d\n", clone_value);
    p = clone(clone_child, clone_stack + sizeof clone_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &arg);
    show("clone with shared memory", wait_for(p));
    printf("value %d\n", clone_value);
    struct { unsigned long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; } args = {0};
    args.exit_signal = SIGCHLD;
    long r = syscall(SYS_clone3, &args, sizeof args);
    if (r == 0) _exit(33);
    // An old kernel does not know clone3; both answers are right.
    if (r > 0) {
        int status = wait_for((pid_t)r);
        if (WEXITSTATUS(status) != 33) printf("clone3 child failed\n");
    } else if (errno != ENOSYS) printf("clone3: %s\n", strerror(errno));
    printf("done\n");
}

// A signal that comes while a program becomes another one ends the one or the other, but is never lost.
static void interrupted_execs(void) {
    int killed = 0, rounds = 60;
    unsigned state = 7;
    for (int i = 0; i < rounds; i++) {
        int ready[2];
        if (pipe(ready)) return;
        pid_t p = fork();
        if (p == 0) {
            if (write(ready[1], "x", 1) != 1) _exit(1);
            execl("/bin/sleep", "sleep", "1000", NULL);
            _exit(2);
        }
        char c;
        if (read(ready[0], &c, 1) != 1) return;
        close(ready[0]);
        close(ready[1]);
        state = state * 1103515245 + 12345;
        for (volatile unsigned spin = state >> 12; spin; spin--) {}
        kill(p, SIGTERM);
        int status = wait_for(p);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
    }
    printf("%d of %d ended by the signal\n", killed, rounds);
}

int main(int argc, char **argv) {
    struct { const char *name; void (*run)(void); } parts[] = {
        {"forks", forks}, {"vforks", vforks}, {"spawns", spawns}, {"execs", exec_each}, {"inheritance", inheritance},
        {"stops", stops}, {"clones", clones}, {"interrupted-execs", interrupted_execs},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc > 1 && strcmp(argv[1], parts[i].name) == 0) return parts[i].run(), 0;
    fprintf(stderr, "processes: no such part\n");
    return 2;
}
