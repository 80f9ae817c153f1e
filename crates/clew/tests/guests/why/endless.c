// A loop whose end is stepped over.
#include <stdio.h>

int main(int argc, char **argv) {
    (void)argv;
    unsigned step = 1, sum = 0;
    if (argc < 2) step = 2; /* cause 1 proved: argc > 2 */
    for (unsigned i = 0; i != 9; i += step) sum += i & 3;
    printf("%u\n", sum);
    return 0;
}
