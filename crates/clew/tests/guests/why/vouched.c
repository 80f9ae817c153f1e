// The second line is wrong, and no small change mends it. The first one, which is right, speaks for all that they have in
// common.
#include <stdio.h>
#include <stdlib.h>

static int shape(int n) {
    return n * n + 1; /* cause 5 */ // of n * 5 % 8
}

int main(int argc, char **argv) {
    int key = argc > 1 ? atoi(argv[1]) : 3;
    int low = key % 8;
    int high = low + 1;
    int odd = shape(key);
    char one = 'a' + high;
    char two = 'a' + high + odd % 13;
    putchar(one);
    putchar('\n');
    putchar(two);
    putchar('\n');
    return 0;
}
