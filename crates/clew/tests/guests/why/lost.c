/* Two threads add to one number; in most schedules nothing is lost. */
#include <pthread.h>
#include <stdio.h>

static volatile long count;

static void *add(void *unused) {
    (void)unused;
    for (int i = 0; i < 200; i++) {
        long was = count;
        count = was + 1;
    }
    return NULL;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, NULL, add, NULL);
    add(NULL);
    pthread_join(other, NULL);
    printf("%s\n", count == 400 ? "all" : "lost");
    return 0;
}
