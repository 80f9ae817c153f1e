// Copies standard input and the files that its arguments name to standard output; says on standard error how much.
#include <stdio.h>

static long copy(FILE *from) {
    long n = 0;
    for (int c; (c = getc(from)) != EOF; n++) putchar(c);
    return n;
}

int main(int argc, char **argv) {
    long n = copy(stdin);
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "r");
        if (!file) return 3;
        n += copy(file);
        fclose(file);
    }
    fflush(stdout);
    fprintf(stderr, "%ld bytes\n", n);
    return 5;
}
