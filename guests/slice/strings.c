/* Text that is copied, searched, joined and formatted: most work is done in the C library, with vectors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *joined(const char *const *words, int count) {
    size_t length = 1;
    for (int i = 0; i < count; i++)
        length += strlen(words[i]) + 1;
    char *all = malloc(length);
    all[0] = 0;
    for (int i = 0; i < count; i++) {
        strcat(all, words[i]);
        strcat(all, i % 2 ? "-" : "_");
    }
    return all;
}

static unsigned hashed(const char *text) {
    unsigned hash = 5381;
    for (; *text; text++)
        hash = hash * 33 ^ (unsigned char)*text;
    return hash;
}

int main(int count, char **words) {
    const char *list[] = {"alpha", "beta", "a somewhat longer piece of text than sixteen bytes", "delta", words[count - 1]};
    char *text = joined(list, 5);
    char *twice = strdup(text);
    memmove(twice + 3, twice, strlen(twice) - 3);
    char *middle = strchr(text, '_');
    char *found = strstr(text, "delta");
    char line[200];
    snprintf(line, sizeof line, "%s|%d|%5.2f|%x", middle + 1, (int)(found - text), hashed(text) / 7.0, hashed(twice));
    char upper[200];
    size_t n = strlen(line);
    for (size_t i = 0; i <= n; i++)
        upper[i] = line[i] >= 'a' && line[i] <= 'z' ? line[i] - 32 : line[i];
    printf("%s %d\n", upper, memcmp(line, upper, n) > 0);
    puts(twice);
    char *copy = realloc(twice, 400000);
    memset(copy + 300000, 'x', 1000);
    copy = realloc(copy, 4000000);
    printf("%c %c %ld\n", copy[4], copy[300500], strtol("123 ", 0, 0) + (copy[300500] == 'x'));
    free(copy);
    free(text);
    return 0;
}
