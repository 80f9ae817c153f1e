/* Goes down for ever: the number that should end it is counted the wrong way. Tens of thousands of calls are under way when
 * the stack is used up. */
#include <stdio.h>

static int depth(int n) {
    volatile char pad[64];
    pad[0] = 0;
    if (n == 0) return pad[0]; /* cause 1 proved */
    return depth(n + 1);
}

int main(void) {
    printf("%d\n", depth(1));
    return 0;
}
