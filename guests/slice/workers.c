/* Threads that share a queue and a sum. flags: -pthread */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int queue[40], head, tail;
static long sums[3], total;
static atomic_long counted;

static int taken(void) {
    pthread_mutex_lock(&lock);
    int item = head < tail ? queue[head++] : -1;
    pthread_mutex_unlock(&lock);
    return item;
}

static void *work(void *number) {
    long *sum = &sums[(long)number];
    for (int item; (item = taken()) >= 0;) {
        *sum = *sum * 5 + item;
        atomic_fetch_add(&counted, item % 4);
        pthread_mutex_lock(&lock);
        total += *sum & 0xff;
        pthread_mutex_unlock(&lock);
    }
    return (void *)*sum;
}

int main(void) {
    for (int i = 0; i < 40; i++)
        queue[tail++] = i * i % 23;
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, work, (void *)i);
    long all = 0;
    for (int i = 0; i < 3; i++) {
        void *sum;
        pthread_join(threads[i], &sum);
        all ^= (long)sum;
    }
    printf("%ld %ld %ld\n", all & 1, total & 1, (long)counted);
    return 0;
}
