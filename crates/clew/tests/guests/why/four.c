// Four threads; one of them fails its assertion on any schedule.
#include <assert.h>
#include <pthread.h>
#include <stdio.h>

static int share(int total, int parts, int n) {
    int size = total / parts;
    if (n == parts) size += total % parts; /* cause 3 proved: parts - 1 */
    return size;
}

static void *work(void *argument) {
    int n = (int)(long)argument;
    int size = share(10, 4, n);
    assert(n < 3 || size == 4); /* cause 5 */
    return (void *)(long)size;
}

int main(void) {
    pthread_t threads[4];
    long sum = 0;
    for (long n = 0; n < 4; n++) pthread_create(&threads[n], NULL, work, (void *)n);
    for (int n = 0; n < 4; n++) {
        void *size;
        pthread_join(threads[n], &size);
        sum += (long)size;
    }
    printf("%ld\n", sum);
    return 0;
}
