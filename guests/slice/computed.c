// An interpreter that jumps to labels by their addresses: nothing in the code says which ones a jump may lead to. Most of
// the time is spent in one of them, so that windows late in the run have seen few of the others.
#include <stdio.h>

static unsigned long state = 88172645463325252ul;

static unsigned next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 11);
}

static unsigned interpret(const unsigned char *code, unsigned value) {
    static const void *const ways[] = { &&add, &&delay, &&twice, &&end };
    unsigned counter = 0;
    goto *ways[*code];
add:
    value += 3; /* add */
    if (value & 1) counter++; /* odd */
    goto *ways[*++code];
delay:
    for (int i = 0; i < 30000; i++) /* delay */
        if (next() & 1) counter += value & 1;
        else value ^= 2;
    goto *ways[*++code];
twice:
    value *= 2; /* twice */
    if (value > 1000) value -= 77;
    goto *ways[*++code];
end:
    return value + (counter & 3); /* end */
}

int main(int argc, char **argv) {
    (void)argv;
    unsigned char code[] = { 2, 0, 0, 2, 1, 0, 1, 0, 1, 1, 0, 1, 3 };
    printf("%u\n", interpret(code, (unsigned)argc + 4)); /* print */
}
