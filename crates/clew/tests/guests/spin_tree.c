// A parent and its child that both compute for a while without a call; then the parent aborts.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned spin(unsigned seed) {
    for (unsigned i = 0; i < 400u * 1000 * 1000; i++) seed = seed * 1664525 + 1013904223;
    return seed;
}

int main(void) {
    pid_t child = fork();
    volatile unsigned end = spin((unsigned)child);
    if (child == 0) _exit(end == 1);
    waitpid(child, 0, 0);
    abort();
}
