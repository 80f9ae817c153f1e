/* Heap overflow: an array is cleared up to the bound of another one, and writes over what lies behind it. */
#include <stdio.h>
#include <stdlib.h>

struct entry {
    long id;
    long *value;
};

static int array_count, variable_count = 8;
static long answer = 7;
static long **arrays;
static struct entry *entries;

static void more_arrays(void) {
    array_count += 4;
    arrays = malloc(array_count * sizeof *arrays);
    entries = malloc(sizeof *entries);
    entries->id = 1;
    entries->value = &answer;
    int index = 0;
    for (; index < variable_count; index++)
        arrays[index] = NULL;
}

static long look_up(void) {
    return *entries->value;
}

int main(void) {
    more_arrays();
    printf("found %ld\n", look_up());
    return 0;
}
