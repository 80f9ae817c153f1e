// Prints something else each time.
#include <stdio.h>
#include <unistd.h>

int main(void) {
    printf("%d\n", (int)getpid()); /* cause 1 */
    return 0;
}
