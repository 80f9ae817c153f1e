// A condition of two parts, of which the second one is tested less often.
#include <stdio.h>

struct person {
    int department, pay;
};

static int sum(const struct person *people, int count, int least) {
    int total = 0;
    for (int i = 0; i < count; i++)
        if (people[i].department == 2 || people[i].pay > least) /* critical */
            total += people[i].pay;
    return total;
}

int main(void) {
    const struct person people[] = {{1, 10}, {2, 70}, {2, 80}, {1, 20}, {2, 30}, {3, 10}};
    printf("%d\n", sum(people, 6, 50));
    return 0;
}
