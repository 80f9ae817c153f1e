/* A test that is wrong by one leaves a limit as it was. With 4: expected "14\n". */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int n = atoi(argv[argc - 1]);
    int limit = 3;
    if (n > 4) /* critical: >= */
        limit = 7; /* missing */
    int size = limit * 2; /* wrong */
    printf("%d\n", size); /* symptom */
    return 0;
}
