// A crash that any branch before it can avoid and none can repair: nothing is proved.
#include <stdio.h>

struct node {
    struct node *next;
    int value;
};

int main(int argc, char **argv) {
    (void)argv;
    struct node last = {0, 2}, first = {&last, 1};
    int sum = 0;
    struct node *at = &first;
    for (int i = 0; i < 3; i++) {
        if (argc < 9) sum += at->value; /* cause 5 */
        at = at->next;
    }
    printf("%d\n", sum);
    return 0;
}
