// An assertion that fails because a counter was not reset.
#include <assert.h>
#include <stdio.h>

static int depth;

static void visit(const char *text) {
    for (; *text; text++) {
        if (*text == '(') depth++;
        if (*text == ']') depth--; /* cause 5 proved: ')' */
    }
}

int main(void) {
    visit("f(x)");
    assert(depth == 0);
    puts("balanced");
    return 0;
}
