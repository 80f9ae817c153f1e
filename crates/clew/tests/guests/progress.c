// Prints a line per step, so that whoever reads them can say when to interfere. Each step logs some 32 kB, and some
// steps start a child, map memory or read the file that the second argument names.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char bytes[32768];

static unsigned sum(const unsigned char *from, long n) {
    unsigned s = 0;
    for (long i = 0; i < n; i++) s = s * 31 + from[i];
    return s;
}

static void say(const char *what, int step, unsigned value) {
    char line[80];
    int n = snprintf(line, sizeof line, "%s %d %08x\n", what, step, value);
    if (write(1, line, n) != n) exit(9);
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 10;
    say("pid", getpid(), 0);
    int random = open("/dev/urandom", O_RDONLY);
    for (int step = 1; step <= steps; step++) {
        long n = read(random, bytes, sizeof bytes);
        say("step", step, sum(bytes, n));
        if (step % 5 == 0) {
            pid_t child = fork();
            if (child == 0) {
                say("child", step, sum(bytes, 100));
                _exit(step);
            }
            int status = 0;
            waitpid(child, &status, 0);
            say("ended", step, status);
        }
        if (step % 7 == 0 && argc > 2) {
            int file = open(argv[2], O_RDONLY);
            n = read(file, bytes, sizeof bytes);
            close(file);
            say("file", step, n < 0 ? 0 : sum(bytes, n));
        }
        if (step % 3 == 0) {
            unsigned char *page = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memcpy(page, bytes, sizeof bytes);
            say("mapped", step, sum(page, 1 << 16));
            munmap(page, 1 << 16);
        }
    }
    return 7;
}
