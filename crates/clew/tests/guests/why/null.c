// A lookup that misses its last entry, and a caller that trusts it.
#include <stdio.h>
#include <string.h>

struct option {
    const char *name;
    int value;
};
static struct option options[] = {{"width", 80}, {"height", 24}, {"depth", 8}};

static struct option *find(const char *name) {
    for (int i = 0; i < 2; i++) { /* cause 3 proved: 3 */
        if (strcmp(options[i].name, name) == 0) return &options[i];
    }
    return NULL;
}

int main(void) {
    printf("%d\n", find("width")->value);
    struct option *depth = find("depth");
    printf("%d\n", depth->value);
    return 0;
}
