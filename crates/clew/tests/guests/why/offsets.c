/* Tells where each letter a stands, in bytes where characters are meant. Two numbers are wrong for the same reason, so no
 * one change repairs the whole output; the first can be repaired. */
#include <stdio.h>
#include <string.h>

static int place(const char *text, const char *at) {
    int n = at - text; /* cause 1 */
    return n;
}

int main(int argc, char **argv) {
    const char *at = argc > 1 ? argv[1] - 1 : "";
    while ((at = strchr(at + 1, 'a'))) {
        printf("%d\n", place(argv[1], at));
    }
    return 0;
}
