/* Stops early unless one branch goes the other way; then it needs what a trial's world has to give.
 *
 *     world input              the rest of standard input
 *     world child              the same, read by a forked child that writes through a pipe to its parent
 *     world changed FILE       a file whose beginning it has overwritten
 *     world replaced FILE      a file that it has emptied and written anew
 *     world unread FILE        a file that the failing run never opened
 *     world name FILE          whether a file is there that it has removed
 *     world execute FILE       another program, which reads standard input and the file and executes a third one
 *     world shell FILE         a shell with pipelines, files that it writes for its own commands, and a trap
 *     world events             descriptors that it waits for with epoll instances, one made before and one after
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[1 << 16];

static void copy(int from, int to) {
    ssize_t n;
    while ((n = read(from, buffer, sizeof buffer)) > 0) {
        if (write(to, buffer, n) != n) exit(3);
    }
}

static void copy_file(const char *name) {
    int fd = open(name, O_RDONLY);
    if (fd < 0) exit(4);
    copy(fd, 1);
    close(fd);
}

static void through_child(void) {
    int ends[2], status;
    if (pipe(ends) != 0) exit(5);
    pid_t pid = fork();
    if (pid == 0) {
        copy(0, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    copy(ends[0], 1);
    if (waitpid(pid, &status, 0) != pid || status != 0) exit(6);
}

static int poller, counter, timer;

static void watch(int poller, int fd, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0) exit(11);
}

/* Waits for one of the descriptors to be ready, as long as need be, and tells which one it is. */
static void next_event(int poller, int limit) {
    struct epoll_event event;
    uint64_t value = 0;
    int n = epoll_wait(poller, &event, 1, limit);
    if (n == 0) puts("nothing");
    else if (n != 1) exit(12);
    else if (event.data.fd == counter && read(counter, &value, sizeof value) == sizeof value) printf("counter %d\n", (int)value);
    else if (event.data.fd == timer && read(timer, &value, sizeof value) == sizeof value) printf("timer %d\n", (int)value);
    else if (read(event.data.fd, buffer, sizeof buffer) == 5) printf("pipe %.5s\n", buffer);
}

static void prepare_events(void) {
    poller = epoll_create1(EPOLL_CLOEXEC);
    counter = eventfd(3, EFD_NONBLOCK);
    timer = timerfd_create(CLOCK_MONOTONIC, 0);
    watch(poller, counter, EPOLLIN);
    watch(poller, timer, EPOLLIN | EPOLLET);
    next_event(poller, -1);
}

static void wait_for_events(void) {
    uint64_t four = 4;
    struct itimerspec soon = {.it_value.tv_nsec = 3000000};
    int ends[2], second = epoll_create1(0);
    if (write(counter, &four, sizeof four) != sizeof four) exit(13);
    next_event(poller, -1);
    next_event(poller, 1);
    timerfd_settime(timer, 0, &soon, NULL);
    next_event(poller, -1);
    if (pipe2(ends, O_NONBLOCK) != 0) exit(14);
    watch(second, ends[0], EPOLLIN | EPOLLONESHOT);
    if (read(ends[0], buffer, 1) != -1) exit(15);
    if (fork() == 0) _exit(write(ends[1], "bytes", 5) == 5 ? 0 : 1);
    next_event(second, -1);
    next_event(second, 1);
    if (wait(NULL) < 0) exit(16);
}

static void through_shell(const char *file) {
    char command[1024];
    snprintf(command, sizeof command,
             "trap 'echo trapped' USR1; x=$(/bin/echo inner | cat); echo $x > %s.new; echo more >> %s.new\n"
             "sort -r %s.new | (read a; read b; /bin/echo $b $a); rm %s.new; test -e %s.new || echo gone\n"
             "kill -USR1 $$; (exit 3) || echo $?; for i in 1 2 3 4 5 6 7; do /bin/echo $i; done | wc -l",
             file, file, file, file, file);
    printf("status %d\n", system(command));
}

static void first(const char *mode, const char *file) {
    int fd;
    if (!strcmp(mode, "changed")) {
        fd = open(file, O_RDWR);
        if (read(fd, buffer, 2) != 2 || pwrite(fd, "XXXX", 4, 0) != 4) exit(7);
        close(fd);
    } else if (!strcmp(mode, "replaced")) {
        fd = open(file, O_WRONLY | O_TRUNC);
        if (write(fd, "new\n", 4) != 4) exit(8);
        close(fd);
    } else if (!strcmp(mode, "name")) {
        if (unlink(file) != 0) exit(9);
    } else if (!strcmp(mode, "events")) {
        prepare_events();
    } else if (strcmp(mode, "unread") && strcmp(mode, "shell")) {
        if (read(0, buffer, 4) != 4 || write(1, buffer, 4) != 4) exit(10);
    }
}

static void rest(const char *mode, const char *file) {
    if (!strcmp(mode, "input")) copy(0, 1);
    else if (!strcmp(mode, "child")) through_child();
    else if (!strcmp(mode, "name")) puts(access(file, F_OK) == 0 ? "there" : "gone");
    else if (!strcmp(mode, "execute"))
        execl("/bin/sh", "sh", "-c", "cat; /bin/echo and $0; exec sort -r \"$1\"", "that", file, NULL);
    else if (!strcmp(mode, "shell")) through_shell(file);
    else if (!strcmp(mode, "events")) wait_for_events();
    else copy_file(file);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    const char *file = argc > 2 ? argv[2] : "";
    first(argv[1], file);
    if (getenv("CLEW_TEST_GOES_ON")) /* critical */
        rest(argv[1], file);
    fflush(stdout);
    return 0;
}
