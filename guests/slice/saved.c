/* A value stays in a register that another function saves and restores: that function has nothing to do with it. */
#include <stdio.h>

static volatile int counter, base = 21;

__attribute__((noinline)) static void other(void) {
    register long mine asm("rbx") = counter;
    asm volatile("" : "+r"(mine));
    counter = (int)mine + 1;
} /* end of other */

__attribute__((noinline)) static int kept(FILE *from, int start) {
    register long twice asm("rbx") = (long)start + start; /* double */
    asm volatile("" : "+r"(twice));
    int letter = fgetc(from); /* read */
    if (letter == 't') /* if */
        other(); /* other */
    asm volatile("" : "+r"(twice));
    return (int)twice; /* use */
}

int main(void) {
    int start = base; /* start */
    return kept(stdin, start); /* call */
}
