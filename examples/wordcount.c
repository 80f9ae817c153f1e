// A small program to try Clew on: counts how often each word occurs in its input and prints the most frequent ones.
//
//     wordcount [FILE]      reads standard input without FILE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char *word;
    unsigned long count;
    struct entry *next;
};

enum { BUCKETS = 1 << 12, SHOWN = 10 };
static struct entry *buckets[BUCKETS];
static unsigned long distinct, total;

static unsigned hash(const char *s) {
    unsigned h = 2166136261u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h % BUCKETS;
}

static void count(const char *word) {
    struct entry **bucket = &buckets[hash(word)];
    total++;
    for (struct entry *e = *bucket; e; e = e->next) {
        if (strcmp(e->word, word) == 0) {
            e->count++;
            return;
        }
    }
    struct entry *e = malloc(sizeof *e);
    if (!e || !(e->word = strdup(word))) {
        fprintf(stderr, "wordcount: out of memory\n");
        exit(1);
    }
    e->count = 1;
    e->next = *bucket;
    *bucket = e;
    distinct++;
}

static int by_count(const void *a, const void *b) {
    const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return strcmp(x->word, y->word);
}

int main(int argc, char **argv) {
    FILE *in = argc > 1 ? fopen(argv[1], "r") : stdin;
    if (!in) {
        perror(argv[1]);
        return 1;
    }
    char word[64];
    size_t length = 0;
    int c;
    do {
        c = fgetc(in);
        if (c != EOF && isalpha(c)) {
            if (length < sizeof word - 1) word[length++] = (char)tolower(c);
        } else if (length > 0) {
            word[length] = 0;
            count(word);
            length = 0;
        }
    } while (c != EOF);

    struct entry **all = malloc((distinct + 1) * sizeof *all);
    size_t n = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (struct entry *e = buckets[i]; e; e = e->next) all[n++] = e;
    qsort(all, n, sizeof *all, by_count);
    printf("%lu words, %lu distinct\n", total, distinct);
    for (size_t i = 0; i < n && i < SHOWN; i++) printf("%6lu %s\n", all[i]->count, all[i]->word);
    return 0;
}
