/* What is not there is taken for a list of names. */
#include <stdlib.h>
#include <string.h>

static volatile int incremental = 1;

__attribute__((noinline)) static size_t contents(const char *path) {
    size_t all = 0, length;
    char *names = getenv(path); /* origin */
    if (incremental != 0) { /* if */
        char *volatile entry = names; /* start */
        for (; (length = strlen(entry)) != 0; entry += length + 1) /* crash */
            all += length;
    }
    return all;
}

int main(void) {
    return (int)contents("CLEW_NO_SUCH_VARIABLE"); /* call */
}
