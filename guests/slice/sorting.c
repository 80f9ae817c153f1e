/* Records that are sorted by the C library with a comparison of the program's, and by a recursion of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct record {
    short key;
    char name[6];
    long weight;
    struct record *next;
};

static int by_key(const void *a, const void *b) {
    const struct record *x = a, *y = b;
    return x->key != y->key ? x->key - y->key : strcmp(x->name, y->name);
}

static void quick(long *list, int from, int to) {
    if (from >= to)
        return;
    long pivot = list[(from + to) / 2];
    int i = from, j = to;
    while (i <= j) {
        while (list[i] < pivot)
            i++;
        while (list[j] > pivot)
            j--;
        if (i <= j) {
            long swap = list[i];
            list[i++] = list[j];
            list[j--] = swap;
        }
    }
    quick(list, from, j);
    quick(list, i, to);
}

static long ackermann(long m, long n) {
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

int main(void) {
    struct record records[24];
    long weights[24];
    unsigned state = 12345;
    for (int i = 0; i < 24; i++) {
        state = state * 1103515245 + 12345;
        struct record fresh = {.key = state >> 24 & 15, .weight = state >> 8 & 0xfff};
        snprintf(fresh.name, sizeof fresh.name, "r%02d", i);
        records[i] = fresh;
        weights[i] = fresh.weight;
    }
    qsort(records, 24, sizeof records[0], by_key);
    quick(weights, 0, 23);
    struct record *first = 0;
    for (int i = 23; i >= 0; i--) {
        records[i].next = first;
        first = &records[i];
    }
    long sum = 0, mixed = 0;
    for (struct record *r = first; r; r = r->next) {
        sum += r->weight;
        mixed = (mixed << 3 | (unsigned long)mixed >> 61) ^ r->key ^ (signed char)r->name[2];
        if (r->key % 3 == 0)
            printf("%s=%ld ", r->name, r->weight % 10 ? r->weight : -r->weight);
    }
    for (int i = 0; i < 24; i++)
        sum = sum * 3 + weights[i];
    printf("\n%ld %ld %ld\n", sum, mixed, ackermann(2, 3));
    return 0;
}
