/* Stack smashing: a name that is longer than its buffer is copied over the return address of the function. */
#include <stdio.h>
#include <string.h>

static const char *files[2];
static int packed;

static int pack(const char *name, int level) {
    char buffer[16];
    strcpy(buffer, name);
    packed += level + (buffer[0] == 'n');
    return packed;
}

int main(int argc, char **argv) {
    int level = 3;
    files[0] = argc > 1 ? argv[1] : "name-of-thirty-characters-long";
    files[1] = 0;
    if (files[0] != 0) {
        if (files[0][0] != '-') {
            pack(files[0], level);
        }
    }
    printf("packed %d\n", packed);
    return 0;
}
