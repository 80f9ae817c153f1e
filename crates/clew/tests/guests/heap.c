/* A name that is too long overwrites the pointer behind it; the crash comes later, elsewhere. */
#include <stdlib.h>
#include <string.h>

struct item {
    long id;
    char name[8];
    struct item *next;
};

static long twice(long n) { return 2 * n; }

static void rename_item(struct item *it, const char *name) {
    for (size_t n = 0; n <= strlen(name); n++)
        it->name[n] = name[n];
}

int main(void) {
    struct item *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    a->id = 1, a->next = b, strcpy(a->name, "a");
    b->id = 2, b->next = NULL, strcpy(b->name, "b");
    rename_item(a, "much too long");
    long sum = 0;
    for (struct item *p = a; p; p = p->next)
        sum += twice(p->id);
    return sum == 6 ? 0 : 1;
}
