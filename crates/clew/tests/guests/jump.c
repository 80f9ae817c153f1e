/* An error deep inside jumps out over several functions. */
#include <setjmp.h>

static jmp_buf out;
static int depth;

static void descend(int n) {
    depth = n;
    if (n == 3)
        longjmp(out, n);
    descend(n + 1);
}

int main(void) {
    int how = setjmp(out);
    if (how == 0)
        descend(0);
    depth = -how;
    return depth == -3 ? 0 : 1;
}
