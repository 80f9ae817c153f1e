/* Prints "a d" for "b c": two choices are wrong, each by itself. Expected: "b c". */
#include <stdio.h>

static volatile int first, second;

__attribute__((noinline)) static void show(const char *text) {
    fputs(text, stdout);
}

int main(void) {
    if (first) /* critical */
        show("b"), show(" ");
    else
        show("a ");
    if (second) /* second */
        show("c"), show("\n");
    else
        show("d\n");
    return 0;
}
