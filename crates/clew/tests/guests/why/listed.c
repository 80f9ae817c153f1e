// One of several names is missing; the place that cannot do without is passed for the others too.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct node {
    char *name;
    int value;
    struct node *next;
};

static struct node *head;

static void add(const char *name, int value) {
    struct node *new = malloc(sizeof *new);
    new->value = value;
    new->next = head;
    head = new;
    new->name = NULL;
    if (value > 0) /* cause 1 proved: >= */
        new->name = strdup(name);
}

int main(void) {
    int total = 0;
    add("zero", 0);
    add("one", 1);
    add("two", 2);
    for (struct node *at = head; at; at = at->next) total += strlen(at->name) + at->value;
    printf("%d\n", total);
    return 0;
}
