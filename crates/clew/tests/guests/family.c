/* A parent and its child go different ways; the child aborts. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int who = 1;

static void child(void) {
    who = 2;
    abort();
}

int main(void) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        child();
    waitpid(pid, &status, 0);
    who = 3;
    return WIFSIGNALED(status) ? 7 : 1;
}
