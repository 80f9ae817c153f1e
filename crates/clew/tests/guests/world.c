/* Stops early unless one branch goes the other way; then it needs what a trial's world has to give.
 *
 *     world input              the rest of standard input
 *     world child              the same, read by a forked child that writes through a pipe to its parent
 *     world changed FILE       a file whose beginning it has overwritten
 *     world replaced FILE      a file that it has emptied and written anew
 *     world unread FILE        a file that the failing run never opened
 *     world name FILE          whether a file is there that it has removed
 *     world fault              what the kernel says of a buffer that is not there
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    } else if (strcmp(mode, "unread") && strcmp(mode, "fault")) {
        if (read(0, buffer, 4) != 4 || write(1, buffer, 4) != 4) exit(10);
    }
}

/* A write of bytes that are not there fails; it must not be taken for one that wrote nothing and is made again. */
static void fault(void) {
    while (write(1, (void *)64, 1L << 40) == 0) {}
    printf("%d\n", errno == EFAULT);
}

static void rest(const char *mode, const char *file) {
    if (!strcmp(mode, "input")) copy(0, 1);
    else if (!strcmp(mode, "child")) through_child();
    else if (!strcmp(mode, "name")) puts(access(file, F_OK) == 0 ? "there" : "gone");
    else if (!strcmp(mode, "fault")) fault();
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
