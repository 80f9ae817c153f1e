/* An object is given back while somebody still holds it; its memory becomes a number of somebody else. */
#include <stdlib.h>

struct type {
    void (*finalize)(void *);
};

union header {
    struct type *type;
    long number;
};

static union header pool[4];
static int used;
static struct type plain;

__attribute__((noinline)) static union header *reserve(void) {
    return &pool[used++]; /* reserve */
}

__attribute__((noinline)) static void reclaim(void) {
    used = 0; /* reclaim */
}

__attribute__((noinline)) static void roll(long number) {
    union header *cell = reserve(); /* cell */
    cell->number = number; /* write */
}

__attribute__((noinline)) static void release(union header *object) {
    struct type *type = object->type; /* load */
    void (*finalize)(void *) = type->finalize; /* crash */
    if (finalize)
        finalize(object);
}

int main(int count, char **words) {
    union header *glyph = reserve(); /* glyph */
    glyph->type = &plain; /* init */
    reclaim(); /* collect */
    roll(count + 70); /* roll */
    release(glyph); /* release */
    return 0;
}
