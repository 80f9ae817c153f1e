// A fault in the data part: both predicates test the same wrong value, so that no single one repairs the run.
#include <stdio.h>
#include <stdlib.h>

static int f(int a, int b) {
    return a + b / 2 + 1; // without + 1 it would be right
}

static int g(int a, int b) {
    return a > b ? a : b;
}

int main(int argc, char **argv) {
    int a = 3, b = 2, x, y;
    if (argc > 2) {
        a = atoi(argv[1]);
        b = atoi(argv[2]);
    }
    int c = f(a, b); /* cause 1 proved */
    if (c < 5)
        x = a + b;
    else
        x = a - b;
    int d = g(a, b);
    if (c < 5)
        y = a * b;
    else
        y = a / b;
    printf("%d %d\n", x + y, d);
    return 0;
}
