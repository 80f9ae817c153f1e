/* A shallow copy: both copies own the same text, and both free it. */
#include <stdlib.h>
#include <string.h>

struct attribute {
    char *text;
    struct attribute *next;
};

__attribute__((noinline)) static struct attribute *duplicate(struct attribute *given) {
    struct attribute *copy = malloc(sizeof *copy); /* make */
    *copy = *given; /* shallow */
    return copy;
}

__attribute__((noinline)) static void discard(struct attribute *attribute) {
    char *text = attribute->text; /* take */
    free(text); /* free */
}

int main(void) {
    struct attribute *one = calloc(1, sizeof *one);
    one->text = strdup("red"); /* text */
    struct attribute *other = duplicate(one); /* duplicate */
    discard(one); /* first */
    discard(other); /* second */
    return 0;
}
