/* Prints 4 for 10: the sum is set back once too often. Expected: "10". */
#include <stdio.h>

static volatile int sum;

__attribute__((noinline)) static void add(int n) {
    sum = sum + n;
}

__attribute__((noinline)) static void set_back(void) {
    sum = 0; /* statement */
}

int main(void) {
    set_back(); /* first call */
    add(1);
    add(2);
    add(3);
    set_back(); /* call */
    add(4);
    if (sum > 100) /* decision */
        puts("much");
    printf("%d\n", sum);
    return 0;
}
