/*
 * Follow a feed with many clients, count the operations that each receives, and measure how late.
 *
 *   readers PORT SSE WS CURSOR EVENTS RATE BATCH
 *
 * SSE clients of event streams and WS clients of the WebSocket start at CURSOR ("now": the end).
 * When all are connected it prints "ready" and waits for a line. Then it posts EVENTS operations in
 * requests of BATCH, one after another, RATE operations a second (0: none, the feed has them), until
 * every client has received EVENTS. There may be no clients.
 * It prints: operations received, bytes, seconds, p50 and p99 in milliseconds.
 * An operation is late from when it was due, which its id says. Exit code 1: some were not received.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SILENT_MS 10000 /* nothing arrived for this long: events are lost */
#define SETTLE_MS 1000  /* from the last answer until every client is at the end of the log */

struct client {
    int socket, is_ws, at; /* at: how much of MARK, then 8 in the digits of an id */
    int head;              /* how much of the blank line after the head */
    int64_t due;
    long received;
};

static const char MARK[] = "\"id\":\"";
static struct client *clients, poster;
static int count, port, poll_fd;
static long received, bytes, late_count, late_max;
static uint32_t *late;

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void put(int to, const char *text, size_t size) {
    if (send(to, text, size, MSG_NOSIGNAL) != (ssize_t)size) err(2, "send");
}

static void open_client(struct client *it) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = it};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    it->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(it->socket, (void *)&address, sizeof address)) err(2, "connect");
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, it->socket, &event);
}

static void subscribe(struct client *it, const char *cursor) {
    char text[512] = {(char)0x81, (char)0xfe, 0, 0, 0, 0, 0, 0}; /* a frame, masked with zeros */
    int size = sprintf(text + 8, "{\"action\":\"subscribe\",\"from\":\"%s\"%*s}", cursor, 126, "");
    text[2] = (char)(size >> 8), text[3] = (char)size;
    put(it->socket, text, 8 + size);
}

/* Count the operations: objects are named x..., or t and the microsecond when they were due. */
static void scan(struct client *it, const char *text, ssize_t size) {
    for (const char *c = text; c < text + size; c++) {
        if (it->at == 8 && *c >= '0' && *c <= '9') {
            it->due = it->due * 10 + *c - '0';
        } else if (it->at == 8) {
            if (late_count < late_max) late[late_count++] = (uint32_t)(now_us() - it->due);
            it->at = 0;
        } else if (it->at == 6) {
            it->at = *c == 't' ? 8 : 0, it->due = 0;
            if (*c == 't' || *c == 'x') it->received++, received++;
        } else {
            it->at = *c == MARK[it->at] ? it->at + 1 : *c == MARK[0];
        }
    }
}

/* Read from every readable client; return how many heads of answers ended. */
static int take(int wait_ms, const char *cursor) {
    static char buffer[1 << 20];
    struct epoll_event events[512];
    int heads = 0, found = epoll_wait(poll_fd, events, 512, wait_ms);
    for (int i = 0; i < found; i++) {
        struct client *it = events[i].data.ptr;
        ssize_t size = recv(it->socket, buffer, sizeof buffer, 0), at = 0;
        if (size <= 0)
            errx(1, "the connection of %s was closed after %ld operations, %ld of all",
                 it == &poster ? "the poster" : it->is_ws ? "a WebSocket" : "a stream",
                 it->received, received);
        for (; at < size && it->head < 4; at++)
            it->head = buffer[at] == "\r\n\r\n"[it->head] ? it->head + 1 : buffer[at] == '\r';
        if (at && it->head == 4) {
            heads++;
            if (it == &poster) it->head = 0;
            if (it->is_ws) subscribe(it, cursor);
        }
        if (it != &poster) bytes += size, scan(it, buffer + at, size - at);
    }
    return heads;
}

static void post(int64_t due, int batch) {
    static char body[1 << 16], request[sizeof body + 256];
    int size = 0;
    for (int i = 0; i < batch; i++)
        size += sprintf(body + size,
                        "{\"event\":\"update\",\"type\":\"video\",\"id\":\"t%ld\",\"parents\":"
                        "[\"video/t%ld\",\"user/x%d\"]}\n", (long)due + i, (long)due + i, i);
    put(poster.socket, request,
        sprintf(request, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                         "application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", size, body));
}

static int by_size(const void *a, const void *b) {
    uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
    return one < other ? -1 : one > other;
}

int main(int argc, char **argv) {
    if (argc != 8) errx(2, "usage: readers PORT SSE WS CURSOR EVENTS RATE BATCH");
    int sse = atoi(argv[2]), rate = atoi(argv[6]), batch = atoi(argv[7]), heads = 0, is_idle = 1;
    long events = atol(argv[5]), posted = 0;
    const char *cursor = argv[4];
    struct rlimit files = {65536, 65536};
    char text[512];
    setrlimit(RLIMIT_NOFILE, &files);
    port = atoi(argv[1]), count = sse + atoi(argv[3]), poll_fd = epoll_create1(0);
    clients = calloc(count + 1, sizeof *clients), late_max = count * events;
    late = calloc(late_max + 1, sizeof *late);
    for (int i = 0; i < count; i++) {
        struct client *it = clients + i;
        open_client(it);
        it->is_ws = i >= sse;
        int size = sprintf(text, "GET /%s HTTP/1.1\r\nHost: localhost\r\n%s", it->is_ws ? "ws" : "",
            it->is_ws ? "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                      : "Accept: text/event-stream\r\n");
        if (!it->is_ws && strcmp(cursor, "now"))
            size += sprintf(text + size, "Last-Event-ID: %s\r\n", cursor);
        put(it->socket, text, size + sprintf(text + size, it->is_ws ? "" : "\r\n"));
    }
    if (rate) {
        while (heads < count) heads += take(SILENT_MS, cursor);
        for (int64_t until = now_us() + SETTLE_MS * 1000; now_us() < until;) take(50, cursor);
        received = bytes = late_count = 0;
        puts("ready"), fflush(stdout);
        if (!fgets(text, sizeof text, stdin)) return 2;
        open_client(&poster);
    }
    int64_t began = now_us(), moved = began;
    while (received < count * events || (rate && (posted < events || !is_idle))) {
        if (now_us() - moved > SILENT_MS * 1000) break;
        int64_t due = began + (rate ? posted * 1000000 / rate : 0);
        int wait_ms = SILENT_MS;
        if (rate && posted < events && is_idle) {
            if (now_us() >= due) post(due, batch), posted += batch, is_idle = 0;
            else wait_ms = 1 + (int)((due - now_us()) / 1000);
        }
        long before = received;
        int answers = take(wait_ms, cursor); /* of the poster: the others have their heads */
        if (answers) is_idle = 1;
        if (answers || received > before) moved = now_us();
    }
    qsort(late, late_count, sizeof *late, by_size);
    printf("%ld %ld %.3f %.1f %.1f\n", received, bytes, (now_us() - began) / 1e6,
           late[late_count / 2] / 1e3, late[late_count * 99 / 100] / 1e3);
    return received != count * events;
}
