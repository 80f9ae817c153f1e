/* One early line of a long output is wrong: "5 even" for "5 odd". */
#include <stdio.h>

int main(void) {
    for (int i = 0; i < 300000; i++) {
        const char *what = "odd";
        if (i % 2 == 0 || i == 5) /* cause 1 proved */
            what = "even";
        printf("%d %s\n", i, what);
    }
    return 0;
}
