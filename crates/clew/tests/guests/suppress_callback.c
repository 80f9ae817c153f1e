/* Prints 0 for 7: what is called at the end, by the library, spoils the value before it is shown. Expected: "7". */
#include <stdio.h>
#include <stdlib.h>

static volatile int value = 7;

static void show(void) {
    printf("%d\n", value);
}

static void spoil(void) { /* function */
    value = 0;
}

int main(void) {
    atexit(show);
    atexit(spoil);
    return 0;
}
