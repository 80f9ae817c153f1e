/* Two threads add one each without a lock: 1 when an update is lost, as almost never happens by itself. */
#include <pthread.h>
#include <stdio.h>

int x;

static void *add(void *unused) {
    (void)unused;
    x = x + 1;
    return 0;
}

int main(void) {
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], 0, add, 0);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], 0);
    printf("%d\n", x);
    return x != 2;
}
