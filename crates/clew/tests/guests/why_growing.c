/* Groups of equal numbers, the last one of each by its place. A number that is not one (`nan`) equals nothing, not even itself:
   its group is empty, and the loop stays where it is. The list of groups grows and is checked in each round, in two passes, so
   rounds get longer, and the last stretch of the run is all of one pass. */
#include <stdio.h>
#include <stdlib.h>

static long *groups;
static int used, room;

static void add(long place) {
    if (used == room) {
        room = room ? 2 * room : 4;
        long *larger = malloc(room * sizeof *larger);
        for (int i = 0; i < used; i++)
            larger[i] = groups[i];
        free(groups);
        groups = larger;
    }
    groups[used++] = place;
}

static long checked(void) {
    long sum = 0, bits = 0;
    for (int i = 0; i < used; i++)
        for (int bit = 0; bit < 64; bit++)
            sum += bit == 63 && groups[i] >= 0;
    for (int i = 0; i < used; i++)
        for (int bit = 0; bit < 64; bit++)
            bits += groups[i] >> bit & 1;
    return bits >= 0 ? sum : -1;
}

static void group(const double *numbers, int count) {
    for (int i = 0; i < count;) {
        int end = i;
        while (end < count && numbers[end] == numbers[i]) /* not so for the one itself */
            end++;
        add(end - 1);
        if (checked() != used)
            exit(1);
        i = end;
    }
}

int main(int argc, char **argv) {
    double numbers[64];
    int count = 0;
    for (int i = 1; i < argc && count < 64; i++)
        numbers[count++] = strtod(argv[i], NULL);
    group(numbers, count);
    for (int i = 0; i < used; i++)
        printf("%ld\n", groups[i]);
    return 0;
}
