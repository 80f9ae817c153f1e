// A small HTTP server on loopback: answers a number of requests with files of a folder, one connection each, and ends.
// Arguments: number of requests, folder. Writes its port to the file `port`, and in the end what it served to stdout.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char buffer[1 << 14];

static void send_all(int to, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t sent = write(to, bytes, n);
        if (sent <= 0) return;
        bytes += sent;
        n -= (size_t)sent;
    }
}

// Reads a request up to its empty line; false if the client went away before.
static int read_request(int from) {
    size_t n = 0;
    while (n + 1 < sizeof buffer) {
        ssize_t got = read(from, buffer + n, sizeof buffer - 1 - n);
        if (got <= 0) return 0;
        n += (size_t)got;
        buffer[n] = 0;
        if (strstr(buffer, "\r\n\r\n")) return 1;
    }
    return 0;
}

static long answer(int client, const char *folder) {
    char name[512], path[1024], head[256];
    if (!read_request(client) || sscanf(buffer, "GET /%500s ", name) != 1) return 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &about) < 0) {
        if (file >= 0) close(file);
        send_all(client, "HTTP/1.0 404 Not Found\r\n\r\n", 26);
        return 0;
    }
    int n = snprintf(head, sizeof head, "HTTP/1.0 200 OK\r\nContent-Length: %ld\r\n\r\n", (long)about.st_size);
    send_all(client, head, (size_t)n);
    long total = 0;
    for (ssize_t got; (got = read(file, buffer, sizeof buffer)) > 0; total += got) send_all(client, buffer, (size_t)got);
    close(file);
    return total;
}

int main(int argc, char **argv) {
    long requests = argc > 1 ? atol(argv[1]) : 1, bytes = 0;
    const char *folder = argc > 2 ? argv[2] : ".";
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&at, size) < 0 || listen(listener, 16) < 0) return 1;
    getsockname(listener, (struct sockaddr *)&at, &size);
    FILE *port = fopen("port.new", "w");
    fprintf(port, "%d", ntohs(at.sin_port));
    fclose(port);
    rename("port.new", "port");
    for (long i = 0; i < requests; i++) {
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) return 2;
        bytes += answer(client, folder);
        close(client);
    }
    printf("%ld requests, %ld bytes\n", requests, bytes);
    return 0;
}
