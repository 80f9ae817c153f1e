/* A loop goes round once more than it should; the value behind the last one is added. */
#include <stdio.h>

static int sum(const int *values, int n)
{
    int i, s = 0;
    for (i = 0; i <= n; i++) /* cause 3 proved */
        s += values[i];
    return s;
}

int main(void)
{
    int values[6] = {1, 2, 4, 8, 100, 0};
    int total = sum(values, 4);
    printf("sum %d\n", total);
    return 0;
}
