// A forked child dies; a signal that a process sends itself changes what it exits with.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int counted;

static void count(int signal) {
    counted += signal; /* counts */
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "signal")) {
        signal(SIGUSR1, count);
        kill(getpid(), SIGUSR1); /* sends */
        return counted; /* returns */
    }
    int *where = NULL;
    if (fork() == 0) {
        int number = argc * 2; /* doubles */
        int unused = argc + 3; /* unused */
        for (int i = 0; i < 3; i++)
            number += i; /* adds */
        if (number == 5) /* decides */
            *where = number; /* dies */
        _exit(unused);
    }
    int status;
    wait(&status);
    return WTERMSIG(status) == SIGSEGV ? 3 : 4;
}
