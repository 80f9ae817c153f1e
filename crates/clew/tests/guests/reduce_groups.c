/* Reads a file or standard input; a bracket that closes nothing makes it die, another character in another place. */
#include <stdio.h>
#include <stdlib.h>

static char cells[64];
static char *open_groups[64];
static int depth;

static void close_group(void) {
    depth--;
    *open_groups[depth & 63] = 0;
}

static void give_up(void) {
    fprintf(stderr, "unknown character\n");
    abort();
}

int main(int argc, char **argv) {
    FILE *in = argc > 1 ? fopen(argv[1], "r") : stdin;
    if (!in) return 2;
    for (int c; (c = getc(in)) != EOF;) {
        if (c == '(') open_groups[depth++ & 63] = cells;
        if (c == ')') close_group();
        if (c == '#') give_up();
    }
    printf("%d\n", depth);
    return 0;
}
