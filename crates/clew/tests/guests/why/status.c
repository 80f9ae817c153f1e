// Reports failure although nothing failed.
#include <stdio.h>
#include <string.h>

static int check(const char *name, int limit) {
    int length = (int)strlen(name);
    if (length >= limit) { /* cause 5 proved: > */
        fprintf(stderr, "%s is too long\n", name);
        return 1;
    }
    return 0;
}

int main(void) {
    int failures = 0;
    const char *names[] = {"a", "bc", "def"};
    for (int i = 0; i < 3; i++) failures += check(names[i], 3);
    return failures ? 3 : 0;
}
