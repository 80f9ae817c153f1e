/* Aborts: the assertion is right, what it looks at is wrong. Its own branch must not be taken for the cause. */
#include <assert.h>
#include <stdio.h>

static volatile int total;

__attribute__((noinline)) static void add(int n) {
    total = total + n;
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) /* critical */
        add(3);
    add(-1);
    assert(total > 0); /* own */
    puts("fine");
    return 0;
}
