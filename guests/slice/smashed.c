/* A name that is too long is copied over the return address; how long it is says what address that becomes.
   flags: -fno-stack-protector -U_FORTIFY_SOURCE */
#include <stdio.h>
#include <string.h>

static char given[64];
static volatile int opened;

__attribute__((noinline)) static void compress(const char *name) {
    char temporary[16];
    strcpy(temporary, name); /* copy */
    opened += temporary[0]; /* unrelated */
} /* return */

int main(int count, char **words) {
    /* 30 bytes leave the two highest bytes of the address as they were; 40 make one that no CPU accepts. */
    int length = count > 1 ? 40 : 30; /* length */
    memset(given, 'A', length); /* fill */
    compress(given); /* call */
    puts("never reached");
    return 0;
}
