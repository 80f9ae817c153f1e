/* A jump through a table of the program's own: nothing but its target says which arm ran. */
#include <stdio.h>

static volatile int base = 40;

__attribute__((noinline)) static int chosen(FILE *from, int start) {
    static void *const arms[4] = {&&other, &&plus, &&minus, &&other};
    int result;
    int letter = fgetc(from); /* read */
    goto *arms[letter & 3]; /* jump */
plus:
    result = start + 2; /* arm a */
    goto end;
minus:
    result = start - 2; /* arm b */
    goto end;
other:
    result = start * 3; /* arm c */
end:
    return result; /* result */
}

int main(void) {
    int start = base; /* start */
    return chosen(stdin, start); /* call */
}
