/* Values that are what they are because something was not done: branches whose other ways would have changed them. */
#include <stdio.h>
#include <string.h>

struct account {
    int balance, limit, warned;
};

static int highest = 0, refused = 0;
static unsigned mixed = 17;

__attribute__((noinline)) static int booked(struct account *a, int amount) {
    int fee = 2, result = a->balance;
    if (amount > 9000)
        fee = amount / 100;
    if (a->balance + amount < -a->limit) {
        refused++;
        return result;
    }
    result += amount - fee;
    if (result > highest)
        highest = result;
    if (result < 0 && !a->warned)
        a->warned = 1;
    a->balance = result;
    return result;
}

__attribute__((noinline)) static unsigned stirred(unsigned value, int round) {
    unsigned old = mixed;
    if (round % 7 == 6)
        value ^= 0x55;
    if (value == 4711)
        mixed = 1;
    mixed = old * 31 + value;
    return mixed >> 3;
}

int main(int argc, char **argv) {
    struct account mine = {100, 500, 0}, yours = {50, 20, 0};
    const char *word = argc > 1 ? argv[1] : "";
    int total = 0, longest = (int)strlen(word);
    for (int n = 0; n < 40; n++) {
        struct account *a = n % 3 ? &mine : &yours;
        int amount = (n * 37 + longest) % 41 - 17;
        int after = booked(a, amount);
        if (after > 4000)
            total = 0;
        total += after;
        total += (int)(stirred((unsigned)amount, n) & 15);
        if (total < -100000)
            longest++;
    }
    printf("%d %d %d %d %d %u\n", total, highest, refused, mine.balance, yours.warned, mixed);
    return 0;
}
