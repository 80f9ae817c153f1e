/* A test that is wrong by one lets a bonus be added. With 4: expected "8\n". */
#include <stdio.h>
#include <stdlib.h>

static int with_bonus(int n) {
    int sum = n;
    if (n >= 4) /* critical: > */
        sum += 5; /* extra */
    return sum;
}

int main(int argc, char **argv) {
    int n = atoi(argv[argc - 1]);
    int sum = with_bonus(n); /* wrong */
    int steady = n * 100;
    printf("%d\n", sum + steady / 100); /* symptom */
    return 0;
}
