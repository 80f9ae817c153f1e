// Prints everything that a process inherits, so that a run under clew can be compared with a native one.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    for (int i = 0; i < argc; i++) printf("argument %s\n", argv[i]);
    for (char **e = environ; *e; e++) printf("environment %s\n", *e);
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int s = 1; s <= 64; s++) {
        struct sigaction action;
        if (sigismember(&mask, s) == 1) printf("blocked %d\n", s);
        if (!sigaction(s, NULL, &action) && action.sa_handler != SIG_DFL) printf("not default %d\n", s);
    }
    for (int fd = 0; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0) printf("descriptor %d flags %d mode %d\n", fd, flags, fcntl(fd, F_GETFL));
    }
    for (int r = 0; r < RLIM_NLIMITS; r++) {
        struct rlimit limit;
        getrlimit(r, &limit);
        printf("limit %d %lu %lu\n", r, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
    }
    char folder[4096];
    printf("folder %s\n", getcwd(folder, sizeof folder));
    mode_t old = umask(0);
    printf("umask %o\n", old);
    printf("own group %d\n", getpgrp() == getpid());
    printf("dumpable %d\n", prctl(PR_GET_DUMPABLE));
    printf("nice %d\n", getpriority(PRIO_PROCESS, 0));
    return 0;
}
