/* Double free: a node is copied with the text that it owns, and both are released. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    char *text;
    struct node *next;
};

static struct node *duplicate(const struct node *from) {
    struct node *copy = malloc(sizeof *copy);
    *copy = *from;
    copy->next = 0;
    return copy;
}

static void discard(struct node *n) {
    if (n) {
        free(n->text);
        free(n);
    }
}

int main(void) {
    struct node *first = malloc(sizeof *first);
    first->text = strdup("a text that is owned once");
    first->next = 0;
    struct node *second = duplicate(first);
    discard(first);
    discard(second);
    puts("released");
    return 0;
}
