// A value is made by some lines and chosen by others; a branch that did not go the other way might have changed it.
#include <stdlib.h>

int main(int argc, char **argv) {
    int a = atoi(argv[1]); /* reads a */
    int b = atoi(argv[2]); /* reads b */
    int c = a * 3 + b; /* makes c */
    int x = 1; /* presets */
    if (c < 5) /* chooses */
        x = a + b; /* sums */
    int y = 7; /* seven */
    if (b > 100) /* might */
        y = a; /* otherwise */
    int z = x + y; /* makes z */
    return z; /* returns */
}
