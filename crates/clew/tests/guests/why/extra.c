// Prints a separator too many.
#include <stdio.h>

int main(void) {
    int numbers[] = {4, 5, 6};
    for (int i = 0; i < 3; i++) {
        printf("%d", numbers[i]);
        if (i <= 2) putchar(','); /* cause 1 proved: i < 2 */
    }
    return 0;
}
