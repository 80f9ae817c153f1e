/* A list whose end leads to itself: it is printed for ever. With an argument, nothing is printed. */
#include <stdio.h>

struct node {
    int value;
    struct node *next;
};

int main(int argc, char **argv) {
    struct node a[4], *head = a, *before = a; /* wrong: nothing is before the first */
    for (int i = 0; i < 4; i++)
        a[i] = (struct node){i, i < 3 ? &a[i + 1] : 0};
    while (head) {
        struct node *next = head->next;
        head->next = before;
        before = head;
        head = next;
    }
    for (struct node *p = before; p; p = p->next) /* never ends */
        if (argc < 2)
            printf("%d\n", p->value);
    return 0;
}
