/* Computes a wrong value that no branch chose: no switch repairs it. With 40: expected "5\n". */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int points = atoi(argv[1]);
    int each = points / 10; /* fault: 8 */
    printf("%d\n", each + argc - 2);
    return 0;
}
