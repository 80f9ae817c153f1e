/* NULL dereference: a folder that cannot be read has no list of names, and the list is used. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int incremental = 1;

static char *save_names(const char *path) {
    DIR *dir = opendir(path);
    if (dir == NULL)
        return NULL;
    char *names = calloc(1, 4096);
    size_t used = 0;
    for (struct dirent *e = readdir(dir); e != NULL && used < 3800; e = readdir(dir))
        used += strlen(strcpy(names + used, e->d_name)) + 1;
    closedir(dir);
    return names;
}

static int contents(const char *path, int children) {
    char *names = save_names(path);
    int found = 0;
    if (children != 0) {
        size_t length;
        for (char *entry = names; (length = strlen(entry)) != 0; entry += length + 1)
            found++;
    }
    free(names);
    return found;
}

int main(void) {
    const char *folders[] = {"/", "/no/such/folder"};
    int known = 0;
    for (int i = 0; i < 2; i++) {
        if (incremental)
            known += contents(folders[i], 1) > 0;
    }
    printf("known %d\n", known);
    return 0;
}
