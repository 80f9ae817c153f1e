// The child never ends, and the parent waits for it.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void spin(volatile unsigned n) {
    while (n != 0) n -= 2; /* steps over it */
}

int main(void) {
    puts("start");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        spin(7);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) < 0) status = 0;
    printf("done %d\n", status);
    return 0;
}
