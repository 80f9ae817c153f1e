/* Dangling pointer: an object is reclaimed while it is still used, its memory gets integers, and its type is one of them. */
#include <stdio.h>
#include <stdlib.h>

struct type {
    const char *name;
    void (*finalize)(void *);
};

union header {
    const struct type *type;
    long number;
};

static int finalized;

static void finalize_glyph(void *object) {
    finalized += object != 0;
}

static const struct type glyph = {"glyph", finalize_glyph};

static union header *object_make(void) {
    union header *made = malloc(64);
    made->type = &glyph;
    return made;
}

static void object_free(union header *object) {
    const struct type *type = object->type;
    type->finalize(object);
    free(object);
}

static void reclaim(union header *object, int shared) {
    if (shared >= 0)
        free(object);
}

static void roll(union header *stack, long value) {
    stack->number = value;
}

int main(void) {
    for (int i = 0; i < 4; i++)
        object_free(object_make());
    union header *kept = object_make();
    reclaim(kept, 1);
    union header *stack = malloc(64);
    roll(stack, 4660);
    object_free(kept);
    printf("finalized %d\n", finalized);
    return 0;
}
