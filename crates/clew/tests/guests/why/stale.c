// A stale value: the filler writes one entry too far, so that a later test of the first entry sees what was there before.
#include <stdio.h>

enum { NEG, POS, ENTRIES = 8 };
static int base[ENTRIES + 1] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
static int ch[ENTRIES];

static void reset(void) {
    for (int i = 0; i < ENTRIES; i++) ch[i] = NEG;
}

static void fill(int i) {
    int offset = base[i + 1]; // base[i] would be right
    ch[offset] = POS;
}

static int shown(int i) {
    if (i < 0)
        return 2;
    else if (ch[i] == POS) /* cause 1 proved */
        return 0;
    return 1;
}

int main(void) {
    reset();
    for (int i = 0; i < 3; i++) fill(i);
    int entries[] = {7, 0, 1, 2, 6};
    for (int i = 0; i < 5; i++) printf("%d ", shown(entries[i]));
    printf("\n");
    return 0;
}
