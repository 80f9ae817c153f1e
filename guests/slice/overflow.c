/* A loop runs by the wrong count and clears what lies behind its array: the allocator's own numbers. */
#include <stdio.h>
#include <stdlib.h>

static volatile int a_count = 4, v_count = 12;
static void *volatile *arrays;

__attribute__((noinline)) static void more_arrays(void) {
    arrays = malloc(a_count * sizeof *arrays); /* allocate */
    for (int index = 0; index < v_count; index++) /* loop */
        arrays[index] = NULL; /* clear */
}

__attribute__((noinline)) static void *lookup(void) {
    return malloc(2000); /* crash */
}

int main(void) {
    more_arrays(); /* call */
    void *found = lookup(); /* lookup */
    printf("%p\n", found);
    return 0;
}
