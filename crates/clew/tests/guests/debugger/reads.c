/* Input: what is read decides whether the program aborts. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
    char line[32] = {0};
    long got = read(0, line, sizeof line - 1);
    if (got > 3 && line[3] == '!')
        abort();
    printf("read %s", line);
    return 0;
}
