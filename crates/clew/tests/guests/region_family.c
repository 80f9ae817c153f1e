/* Copies and replacements of the process, before and inside of the region. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void region(const char *who)
{
    printf("in the region: %s\n", who);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int status;
    if (!strcmp(how, "execve")) {
        char *arguments[] = { argv[0], "", 0 };
        execv(argv[0], arguments);
        return 1;
    }
    printf("before\n");
    fflush(stdout);
    if (!fork()) {
        if (!strcmp(how, "child"))
            region("early child");
        _exit(1);
    }
    wait(&status);
    if (!strcmp(how, "child"))
        return 4;
    region("parent");
    if (!fork()) {
        region("late child");
        execlp("echo", "echo", "replaced", (char *)0);
        _exit(2);
    }
    wait(&status);
    return 4;
}
