// Dies of the signal that its argument names, by its own doing.
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static volatile int zero;

__attribute__((noinline)) static void write_to_nothing(int *nothing) {
    *nothing = 1; // the line that the message must name
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    if (!strcmp(argv[1], "segv")) write_to_nothing((int *)8);
    if (!strcmp(argv[1], "fpe")) return 7 / zero;
    if (!strcmp(argv[1], "ill")) __builtin_trap();
    if (!strcmp(argv[1], "abrt")) abort();
    if (!strcmp(argv[1], "term")) raise(SIGTERM);
    if (!strcmp(argv[1], "kill")) raise(SIGKILL);
    return 0;
}
