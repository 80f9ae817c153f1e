/* Dies if its input has an exclamation mark; else it tells that it is there through a pipe with a name, and waits. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    FILE *in = fopen(argv[1], "r");
    for (int c; (c = getc(in)) != EOF;)
        if (c == '!') abort();
    int pipe = open(argv[2], O_WRONLY);
    write(pipe, "x", 1);
    for (;;) pause();
}
