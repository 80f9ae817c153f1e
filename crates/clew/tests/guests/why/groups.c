// The same mistake twice behind a pointer: no single execution of the branch repairs the run, but all of them do.
#include <stdio.h>
#include <stdlib.h>

struct group {
    int sum, count;
};

static void add(struct group *g, int value) {
    g->sum += value;
    if (value > 10) /* cause 1 proved: always */
        g->count++;
}

int main(int argc, char **argv) {
    struct group groups[2] = {{0, 0}, {0, 0}};
    for (int i = 1; i < argc; i++)
        add(&groups[atoi(argv[i]) % 2], atoi(argv[i]));
    for (int i = 0; i < 2; i++)
        printf("group %d: %d\n", i, groups[i].sum / groups[i].count);
    return 0;
}
