/* The tax is printed from a copy of a copy; no branch is wrong, the rate is. */
#include <stdio.h>

struct bill {
    long net, tax;
};

static long rate(void) {
    return 17;
}

static long tax_on(long net) {
    long tax = net * rate() / 100; /* cause 1 proved */
    return tax;
}

static void fill(struct bill *bill, long net) {
    bill->net = net;
    bill->tax = tax_on(net);
}

int main(void) {
    struct bill bill;
    fill(&bill, 300);
    struct bill sent = bill;
    printf("tax %ld\n", sent.tax);
    return 0;
}
