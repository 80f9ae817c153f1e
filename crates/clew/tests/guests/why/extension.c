// A library that Python loads; it trusts its caller.
#include <stddef.h>

static int counts[4];
static int *cell(int n) {
    if (n < 4) return &counts[n];
    return NULL;
}

int add(int n, int by) {
    int *at = cell(n); /* cause 5 */
    *at += by; /* cause 5 */
    return *at;
}
