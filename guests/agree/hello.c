// The smallest program, built in every way a program can be linked.
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *name = strrchr(argv[0], '/');
    printf("hello from %s with %d arguments\n", name ? name + 1 : argv[0], argc - 1);
    for (int i = 1; i < argc; i++) printf("%d: %s\n", i, argv[i]);
    return argc > 3 ? 3 : 0;
}
