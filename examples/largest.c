// A small program with a bug, for `clew demo`: prints the largest of the numbers it is given, but may miss one.
//
//     largest 3 7 9      should print 9
#include <stdio.h>
#include <stdlib.h>

static int largest(int count, char **words) {
    int best = atoi(words[0]);
    for (int i = 1; i < count - 1; i++) {
        if (atoi(words[i]) > best) best = atoi(words[i]);
    }
    return best;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    printf("%d\n", largest(argc - 1, argv + 1));
    return 0;
}
