/* Bytes that come out by different ways; each comes from one line. flags: -fno-inline */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile int number = 7;
/* Far enough apart that no vector spans both. */
static char piece[64] __attribute__((aligned(64))), text[64] __attribute__((aligned(64)));

int main(void) {
    int ways = number; /* number */
    strcpy(piece, "pq"); /* piece */
    strcpy(text, "xyz"); /* text */
    char letter = 'a' + ways; /* letter */
    printf("%d", ways); /* printf */
    putchar(letter); /* putchar */
    fputs(piece, stdout); /* fputs */
    fwrite(text, 1, 2, stdout); /* fwrite */
    puts("end"); /* puts */
    fprintf(stderr, "%c", letter); /* stderr */
    fflush(stdout); /* flush */
    int ends[2];
    char there[4] = "mn"; /* there */
    char back[4];
    if (pipe(ends) != 0)
        return 1;
    write(ends[1], there, 2); /* into pipe */
    read(ends[0], back, 2); /* from pipe */
    write(1, back, 2); /* write */
    return ways; /* exit */
}
