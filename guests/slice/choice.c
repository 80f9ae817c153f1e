/* A switch that compilers turn into a jump table: which arm ran is decided by a jump with a computed target. */
#include <stdio.h>

static volatile int base = 40;

__attribute__((noinline)) static int chosen(FILE *from, int start) {
    int result;
    int letter = fgetc(from); /* read */
    switch (letter) { /* switch */
    case 'a': result = start + 2; break; /* arm a */
    case 'b': result = start - 2; break; /* arm b */
    case 'c': result = start * 3; break;
    case 'd': result = start ^ 5; break;
    case 'e': result = start | 8; break;
    case 'f': result = start & 6; break;
    default: result = 0;
    }
    return result; /* result */
}

int main(void) {
    int start = base; /* start */
    return chosen(stdin, start); /* call */
}
