// A tree of processes that talk through pipes: each child doubles what it reads and passes it on to its parent.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int deep(int depth) {
    if (depth == 0) return 1;
    int ends[2];
    if (pipe(ends)) exit(9);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        int value = 2 * deep(depth - 1);
        if (write(ends[1], &value, sizeof value) != sizeof value) exit(9);
        exit(depth);
    }
    close(ends[1]);
    int value = 0, status = 0;
    if (read(ends[0], &value, sizeof value) != sizeof value) exit(9);
    close(ends[0]);
    waitpid(child, &status, 0);
    printf("depth %d: %d, child ended with %d\n", depth, value, WEXITSTATUS(status));
    fflush(stdout);
    return value;
}

int main(void) {
    return deep(4);
}
