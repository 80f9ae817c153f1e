/* Prints "3 3" for "2 3": one odd number is counted too often. Exits with 1 for 0: it returns too early. */
#include <stdio.h>

int main(void) {
    static const int numbers[] = {1, 2, 4, 5, 6, 7};
    volatile int odd = 0, even = 0;
    for (int i = 0; i < 6; i++) {
        if (numbers[i] % 2)
            odd = odd + 1; /* statement */
        else
            even = even + 1;
    }
    printf("%d %d\n", odd, even);
    if (odd == 3)
        return 1; /* return */
    return 0;
}
