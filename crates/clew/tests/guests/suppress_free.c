/* Aborts: the same memory is given back twice, by a function of its own that calls the library's. Expected: "done". */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static void give_back(void *memory) {
    free(memory);
}

int main(void) {
    void *memory = malloc(24);
    void *other = malloc(24);
    give_back(other);
    give_back(memory);
    give_back(memory); /* call */
    puts("done");
    return 0;
}
