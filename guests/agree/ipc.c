// Waiting for events and talking to other processes: pipes, sockets, epoll, eventfd, shared memory, locks, inotify.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void error(const char *what, long r) { printf("%s: %s\n", what, r < 0 ? strerror(errno) : "ok"); }

static void pass_descriptor(void) {
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        int fd = open("passed.txt", O_RDWR | O_CREAT, 0600);
        if (write(fd, "passed by descriptor", 20) != 20) _exit(1);
        char dummy = 'd', control[CMSG_SPACE(sizeof fd)] = {0};
        struct iovec io = {&dummy, 1};
        struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
        _exit(sendmsg(pair[0], &m, 0) == 1 ? 0 : 2);
    }
    char dummy, control[256], text[32] = "";
    struct iovec io = {&dummy, 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    long n = recvmsg(pair[1], &m, 0);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    long got = pread(fd, text, 31, 0);
    printf("recvmsg %ld, descriptor %d, %ld bytes: %s\n", n, fd, got, text);
    int status;
    waitpid(p, &status, 0);
    printf("sender %d\n", status);
}

static void polls(void) {
    int e = epoll_create1(EPOLL_CLOEXEC), ev = eventfd(0, EFD_NONBLOCK), fds[2];
    if (pipe(fds)) return;
    struct epoll_event want = {.events = EPOLLIN, .data.u32 = 1}, got[4];
    epoll_ctl(e, EPOLL_CTL_ADD, ev, &want);
    want.data.u32 = 2;
    epoll_ctl(e, EPOLL_CTL_ADD, fds[0], &want);
    printf("epoll empty %d\n", epoll_wait(e, got, 4, 10));
    uint64_t one = 3;
    if (write(ev, &one, 8) != 8 || write(fds[1], "ab", 2) != 2) return;
    int n = epoll_wait(e, got, 4, 1000);
    unsigned sum = 0;
    for (int i = 0; i < n; i++) sum += got[i].data.u32;
    printf("epoll %d events, sum %u\n", n, sum);
    if (read(ev, &one, 8) != 8) return;
    printf("eventfd %lu\n", one);
    struct pollfd p[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLOUT, 0}};
    n = poll(p, 2, 0);
    printf("poll %d %d %d\n", n, p[0].revents == POLLIN, p[1].revents == POLLOUT);
    fd_set r;
    FD_ZERO(&r);
    FD_SET(fds[0], &r);
    FD_SET(ev, &r);
    struct timeval tv = {0, 10000};
    n = select(100, &r, NULL, NULL, &tv);
    printf("select %d pipe %d event %d\n", n, FD_ISSET(fds[0], &r) != 0, FD_ISSET(ev, &r) != 0);
    struct timespec ts = {0, 5000000};
    printf("pselect %d\n", pselect(0, NULL, NULL, NULL, &ts, NULL));
    close(fds[1]);
    char buffer[8];
    n = (int)read(fds[0], buffer, 8);
    printf("rest %d then end %zd\n", n, read(fds[0], buffer, 8));
}

static void *serve(void *arg) {
    int c = accept((int)(long)arg, NULL, NULL);
    char buffer[100];
    ssize_t n;
    while ((n = recv(c, buffer, sizeof buffer, 0)) > 0) {
        for (ssize_t i = 0; i < n; i++) buffer[i] ^= 0x20;
        send(c, buffer, (size_t)n, 0);
    }
    close(c);
    return NULL;
}

static void sockets(void) {
    int l = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    bind(l, (struct sockaddr *)&a, sizeof a);
    listen(l, 5);
    getsockname(l, (struct sockaddr *)&a, &len);
    pthread_t t;
    pthread_create(&t, NULL, serve, (void *)(long)l);
    int c = socket(AF_INET, SOCK_STREAM, 0);
    error("connect", connect(c, (struct sockaddr *)&a, sizeof a));
    char reply[32] = "";
    send(c, "Hello, World", 12, 0);
    long n = recv(c, reply, 12, MSG_WAITALL);
    printf("reply %ld %s\n", n, reply);
    shutdown(c, SHUT_WR);
    n = recv(c, reply, 12, 0);
    printf("end %ld\n", n);
    pthread_join(t, NULL);
    close(l);
    error("connect to a closed port", connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof a));
    int d[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, d);
    struct iovec out[2] = {{"one ", 4}, {"two", 3}};
    n = writev(d[0], out, 2);
    n += read(d[1], reply, 32);
    printf("datagram %ld %.7s\n", n, reply);
    close(d[1]);
    error("send to nobody", send(d[0], "x", 1, MSG_NOSIGNAL));
}

static void shared_memory(void) {
    int fd = memfd_create("shared", MFD_CLOEXEC);
    if (ftruncate(fd, 8192)) return;
    struct shared { sem_t ping, pong; int value; unsigned word; };
    struct shared *s = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    sem_init(&s->ping, 1, 0);
    sem_init(&s->pong, 1, 0);
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        for (int i = 0; i < 200; i++) {
            sem_wait(&s->ping);
            s->value = s->value * 3 % 1009 + 1;
            sem_post(&s->pong);
        }
        while (__atomic_load_n(&s->word, __ATOMIC_ACQUIRE) == 0)
            syscall(SYS_futex, &s->word, FUTEX_WAIT, 0, NULL, NULL, 0);
        _exit((int)s->word);
    }
    for (int i = 0; i < 200; i++) {
        s->value += i;
        sem_post(&s->ping);
        sem_wait(&s->pong);
    }
    __atomic_store_n(&s->word, 44, __ATOMIC_RELEASE);
    syscall(SYS_futex, &s->word, FUTEX_WAKE, 10, NULL, NULL, 0);
    int status;
    waitpid(p, &status, 0);
    printf("ping-pong %d, child %d\n", s->value, WEXITSTATUS(status));
    unsigned word = 5;
    struct timespec soon = {0, 1000000};
    error("futex with another value", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 4, NULL, NULL, 0));
    error("futex with time-out", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &soon, NULL, 0));
}

static void locks(void) {
    int fd = open("lock.txt", O_RDWR | O_CREAT, 0644), other = open("lock.txt", O_RDWR);
    error("flock", flock(fd, LOCK_EX));
    error("flock elsewhere", flock(other, LOCK_EX | LOCK_NB));
    flock(fd, LOCK_UN);
    struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 10};
    error("record lock", fcntl(fd, F_SETLK, &fl));
    fflush(stdout);
    pid_t p = fork();
    if (p == 0) {
        struct flock want = fl;
        _exit(fcntl(fd, F_SETLK, &want) < 0 ? errno : 0);
    }
    int status;
    waitpid(p, &status, 0);
    printf("child is refused: %s\n", strerror(WEXITSTATUS(status)));
}

static void watch(void) {
    int in = inotify_init1(IN_NONBLOCK);
    mkdir("watched", 0755);
    inotify_add_watch(in, "watched", IN_CREATE | IN_DELETE | IN_CLOSE_WRITE);
    int fd = open("watched/file", O_WRONLY | O_CREAT, 0644);
    if (write(fd, "x", 1) != 1) return;
    close(fd);
    unlink("watched/file");
    char buffer[4096] __attribute__((aligned(8)));
    ssize_t n = read(in, buffer, sizeof buffer);
    for (char *p = buffer; p < buffer + n;) {
        struct inotify_event *e = (struct inotify_event *)p;
        printf("inotify %x %s\n", e->mask, e->name);
        p += sizeof *e + e->len;
    }
    int from = open("watched/a", O_RDWR | O_CREAT, 0644), to = open("watched/b", O_RDWR | O_CREAT, 0644);
    if (write(from, "0123456789", 10) != 10) return;
    off_t at = 2;
    n = sendfile(to, from, &at, 5);
    printf("sendfile %zd at %ld\n", n, (long)at);
    loff_t in_at = 0, out_at = 20;
    n = copy_file_range(from, &in_at, to, &out_at, 10, 0);
    printf("copy_file_range %zd\n", n);
    struct stat s;
    fstat(to, &s);
    printf("size %ld mode %o\n", (long)s.st_size, s.st_mode & 07777);
    error("fallocate", fallocate(to, 0, 0, 100));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    pass_descriptor();
    polls();
    sockets();
    shared_memory();
    locks();
    watch();
    return 0;
}
