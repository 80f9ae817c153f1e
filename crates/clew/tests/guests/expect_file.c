/* Leaves "4 no" in a file where "4 yes" is expected. The mode says how the file is written; in mode "kept" the file should
 * be there in the end and is removed instead. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int right;

__attribute__((noinline)) static void decide(int count) {
    if (count > 9) /* critical */
        right = 1;
}

int main(int argc, char **argv) {
    const char *mode = argv[1], *name = argv[2];
    char other[4096];
    snprintf(other, sizeof other, "%s.new", name);
    int renames = !strcmp(mode, "renamed");
    int late = !strcmp(mode, "late");
    if (late)
        decide(argc);
    FILE *file = fopen(renames ? other : name, !strcmp(mode, "appended") ? "a" : "w");
    if (!strcmp(mode, "unbuffered"))
        setvbuf(file, NULL, _IONBF, 0);
    fprintf(file, "%d ", argc);
    if (!late)
        decide(argc);
    fputs(right ? "yes\n" : "no\n", file); /* shows */
    fclose(file);
    if (renames)
        rename(other, name);
    if (!strcmp(mode, "kept") && !right)
        unlink(name);
    puts("done"); /* other */
    return argc > 99; /* other branch */
}
