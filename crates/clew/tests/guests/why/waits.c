// Waits for something that nobody will do.
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    (void)argv;
    puts("ready");
    fflush(stdout);
    if (argc < 2) /* cause 1 proved */
        pause();
    puts("done");
    return 0;
}
