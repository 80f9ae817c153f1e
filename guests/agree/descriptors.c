// Descriptors: the numbers a program gets must be those it would get natively. The argument selects the part.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static FILE *out;

// The descriptors below `limit` that are open, asked one by one.
static void list(const char *what) {
    fprintf(out, "%s:", what);
    for (int fd = 0; fd < 4096; fd++)
        if (fd != fileno(out) && fcntl(fd, F_GETFD) >= 0) fprintf(out, " %d", fd);
    fprintf(out, " |");
    DIR *d = opendir("/proc/self/fd");
    int seen[256], n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        int fd = atoi(e->d_name);
        if (e->d_name[0] != '.' && fd != dirfd(d) && fd != fileno(out) && n < 256) seen[n++] = fd;
    }
    if (d) closedir(d);
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++)
            if (seen[j] < seen[i]) {
                int x = seen[i];
                seen[i] = seen[j];
                seen[j] = x;
            }
    for (int i = 0; i < n; i++) fprintf(out, " %d", seen[i]);
    fprintf(out, "\n");
}

static void tell(const char *what, long result) {
    const char *why = result < 0 ? strerror(errno) : "";
    fprintf(out, "%s: %ld %s\n", what, result, why);
}

static void closed_stdio(void) {
    list("at the start");
    close(0);
    close(1);
    close(2);
    list("stdio closed");
    for (int i = 0; i < 4; i++) fprintf(out, "open gives %d\n", open("/dev/null", O_RDWR));
    list("reopened");
}

static void close_all(void) {
    for (int i = 0; i < 5; i++) open("/dev/null", O_RDONLY);
    list("before");
    // `out` must survive: close on both sides of it.
    int keep = fileno(out);
    long r = syscall(SYS_close_range, 3, keep - 1, 0);
    fprintf(out, "close_range %ld\n", r);
    r = syscall(SYS_close_range, keep + 1, ~0u, 0);
    fprintf(out, "close_range %ld\n", r);
    list("after");
    for (int fd = 3; fd < 20000; fd++)
        if (fd != keep) close(fd);
    list("after closing one by one");
    fprintf(out, "open gives %d\n", open("/dev/null", O_RDONLY));
    fprintf(out, "time goes on: %d\n", system("exit 5") >> 8);
}

static void numbers(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &limit);
    fprintf(out, "dup above 200: %d\n", fcntl(1, F_DUPFD, 200));
    fprintf(out, "dup2 to 255: %d\n", dup2(1, 255));
    tell("dup2 to 256", dup2(1, 256));
    int n = 0, last = -1;
    for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0; n++) last = fd;
    fprintf(out, "opened %d until %s, last %d\n", n, strerror(errno), last);
    list("all");
}

static void by_name(void) {
    char link[256];
    int fd = open("named.txt", O_RDWR | O_CREAT, 0600), again;
    if (write(fd, "content", 7) != 7) return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    again = open(link, O_RDONLY);
    char text[16] = "";
    fprintf(out, "through /proc: %zd %s\n", read(again, text, 15), text);
    snprintf(link, sizeof link, "/dev/fd/%d", fd);
    struct stat a, b;
    stat(link, &a);
    fstat(fd, &b);
    fprintf(out, "/dev/fd is the same file: %d\n", a.st_ino == b.st_ino);
    tell("no such descriptor", open("/proc/self/fd/999", O_RDONLY));
    tell("read", read(999, text, 1));
    tell("close", close(999));
}

int main(int argc, char **argv) {
    struct { const char *name; void (*run)(void); } parts[] = {
        {"closed-stdio", closed_stdio}, {"close-all", close_all}, {"numbers", numbers}, {"by-name", by_name},
    };
    // Results go to a file on a high descriptor, so that the standard ones are free to be closed.
    int fd = open("result.txt", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    out = fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 100), "w");
    close(fd);
    setvbuf(out, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc > 1 && strcmp(argv[1], parts[i].name) == 0) return parts[i].run(), 0;
    fprintf(stderr, "descriptors: no such part\n");
    return 2;
}
