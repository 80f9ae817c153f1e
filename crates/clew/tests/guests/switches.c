/* Two threads take turns; each writes its number into a shared variable. */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn = 1, rounds;

static void take_turn(int me) {
    turn = 3 - me;
    rounds++;
}

static void *work(void *argument) {
    int me = *(int *)argument;
    for (int n = 0; n < 3; n++) {
        pthread_mutex_lock(&lock);
        while (turn != me)
            pthread_cond_wait(&changed, &lock);
        take_turn(me);
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

int main(void) {
    int numbers[] = {1, 2};
    pthread_t threads[2];
    for (int n = 0; n < 2; n++)
        pthread_create(&threads[n], 0, work, &numbers[n]);
    for (int n = 0; n < 2; n++)
        pthread_join(threads[n], 0);
    return rounds == 6 ? 0 : 1;
}
