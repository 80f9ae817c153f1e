/* Prints 1 for 0: a table that is filled one place too far makes one later test go the wrong way (the stale value of
 * the paper on predicate switching). Expected: "1 0 1 0". */
#include <stdio.h>

static int table[8] = {0, 7, 7, 7, 7, 7, 7, 7};
static volatile int base[5] = {7, 0, 7, 0, 0};

__attribute__((noinline)) static void fill(void) {
    for (int i = 0; i < 4; i++) {
        int from = i == 3 ? base[2] : base[i];
        table[i] = from;
    }
}

__attribute__((noinline)) static void show(const char *text) {
    fputs(text, stdout);
}

int main(void) {
    fill();
    for (int i = 0; i < 4; i++) {
        if (table[i] == 7) /* critical */
            show("1 ");
        else
            show("0 ");
    }
    show("\n");
    return 0;
}
