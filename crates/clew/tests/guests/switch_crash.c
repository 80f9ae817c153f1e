/* Dies of SIGSEGV: a pointer that one branch should have set is null. */
#include <stdio.h>

static int value = 5;
static int *volatile chosen;

__attribute__((noinline)) static void choose(int wanted) {
    if (wanted) /* critical */
        chosen = &value;
}

__attribute__((noinline)) static int use(void) {
    return *chosen;
}

int main(int argc, char **argv) {
    (void)argv;
    choose(argc > 1);
    int got = use();
    printf("%d\n", got);
    return got != 5;
}
