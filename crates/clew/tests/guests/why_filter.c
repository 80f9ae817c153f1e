/* A filter that makes letters capitals, and loses digits. */
#include <ctype.h>
#include <stdio.h>

int main(void) {
    int c;
    while ((c = getchar()) != EOF) {
        if (isalpha(c))
            putchar(toupper(c));
        else if (isspace(c)) /* wrong: digits are lost */
            putchar(c);
    }
    return 0;
}
