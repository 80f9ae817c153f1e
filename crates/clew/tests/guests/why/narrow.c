/* A number is kept in a variable that is too short for it, long before it is printed. */
#include <stdio.h>

static long total(int n, long each)
{
    long sum = 0;
    for (int i = 0; i < n; i++)
        sum += each;
    return sum;
}

static void show(long n)
{
    printf("total %ld\n", n);
}

int main(void)
{
    int sum = total(5, 1000000000); /* cause 1 proved */
    printf("5 parts\n");
    show(sum);
    return 0;
}
