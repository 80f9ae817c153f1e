/* Prints "closed" for "open": two checks fail, and the second is not even made before the first one passes. */
#include <stdio.h>

static volatile int has_key, knows_word;

__attribute__((noinline)) static void show(const char *text) {
    fputs(text, stdout);
}

__attribute__((noinline)) static void enter(void) {
    if (!has_key) { /* critical */
        show("closed\n");
        return;
    }
    if (!knows_word) { /* second */
        show("wrong ");
        show("word\n");
        return;
    }
    show("open");
    show("\n");
}

int main(void) {
    enter();
    return 0;
}
