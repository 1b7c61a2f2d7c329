/* What every process of a container opens and looks for, as lines of strace(1), at the price of little.
 *
 *     tracer -o PREFIX [-E NAME=VALUE]... -- PROGRAM [ARGUMENT]...
 *
 * becomes PROGRAM, which keeps its process number, its parent and its signals; a grandchild follows it and all that it
 * starts, and writes PREFIX.PID for each process. strace stops a program twice for each call and tells of each one.
 * This stops it once where only a name matters (stat, access, readlink: that it was looked for; open: with where it leads
 * to and whether it is there, for which we look ourselves), through a notification of seccomp(2), for which the kernel
 * stays on one processor; and it says each thing of a program once. Where the kernel gives no notifications, each is a
 * stop of ptrace(2). Calls whose result matters (exec, chdir) are stopped at their end, too; ptrace also says who starts
 * whom. No word but names of files is read from a program.
 *
 * What is said is written before the program goes on: no crash and no SIGKILL loses it. What can't be seen is said as
 * "+++ not seen: REASON +++". Built from this file where imgdiff runs; x86-64, Linux 4.8 and newer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if !defined(__x86_64__) || defined(__ILP32__)
#error "another architecture: strace does it there"
#endif
#ifndef SECCOMP_USER_NOTIF_FLAG_CONTINUE /* headers before Linux 5.5 */
#define SECCOMP_USER_NOTIF_FLAG_CONTINUE 1
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS /* headers before Linux 6.6 */
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS _IOW('!', 4, uint64_t)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP 1
#endif

enum { LOOK = 1, RESULT = 2, FOREIGN = 3, OPEN = 4 }; /* what the filter says of a call; OPEN: as LOOK or as RESULT */
enum { PATH = 4096, LINE = 65536, MOST = 1 << 20 };

/* Where a call has its path, and the descriptor that it is relative to (-1: none; both -1: only that it was made). One
 * with two paths is here twice. What Python asks most stands first. */
static const struct call {
    int number, kind, path, base;
    const char *name;
} CALLS[] = {
    {SYS_newfstatat, LOOK, 1, 0, "newfstatat"},
    {SYS_stat, LOOK, 0, -1, "stat"},
    {SYS_lstat, LOOK, 0, -1, "lstat"},
    {SYS_statx, LOOK, 1, 0, "statx"},
    {SYS_access, LOOK, 0, -1, "access"},
    {SYS_faccessat, LOOK, 1, 0, "faccessat"},
    {439, LOOK, 1, 0, "faccessat2"},
    {SYS_readlink, LOOK, 0, -1, "readlink"},
    {SYS_readlinkat, LOOK, 1, 0, "readlinkat"},
    {SYS_getxattr, LOOK, 0, -1, "getxattr"},
    {SYS_lgetxattr, LOOK, 0, -1, "lgetxattr"},
    {SYS_listxattr, LOOK, 0, -1, "listxattr"},
    {SYS_llistxattr, LOOK, 0, -1, "llistxattr"},
    {SYS_statfs, LOOK, 0, -1, "statfs"},
    {SYS_inotify_add_watch, LOOK, 1, -1, "inotify_add_watch"},
    {SYS_name_to_handle_at, LOOK, 1, 0, "name_to_handle_at"},
    {SYS_truncate, LOOK, 0, -1, "truncate"},
    {SYS_mkdir, LOOK, 0, -1, "mkdir"},
    {SYS_mkdirat, LOOK, 1, 0, "mkdirat"},
    {SYS_rmdir, LOOK, 0, -1, "rmdir"},
    {SYS_unlink, LOOK, 0, -1, "unlink"},
    {SYS_unlinkat, LOOK, 1, 0, "unlinkat"},
    {SYS_rename, LOOK, 0, -1, "rename"},
    {SYS_rename, LOOK, 1, -1, "rename"},
    {SYS_renameat, LOOK, 1, 0, "renameat"},
    {SYS_renameat, LOOK, 3, 2, "renameat"},
    {SYS_renameat2, LOOK, 1, 0, "renameat2"},
    {SYS_renameat2, LOOK, 3, 2, "renameat2"},
    {SYS_link, LOOK, 0, -1, "link"},
    {SYS_link, LOOK, 1, -1, "link"},
    {SYS_linkat, LOOK, 1, 0, "linkat"},
    {SYS_linkat, LOOK, 3, 2, "linkat"},
    {SYS_openat, OPEN, 1, 0, "openat"},
    {SYS_open, OPEN, 0, -1, "open"},
    {SYS_creat, OPEN, 0, -1, "creat"},
    {437, OPEN, 1, 0, "openat2"},
    {SYS_execve, RESULT, 0, -1, "execve"},
    {SYS_execveat, RESULT, 1, 0, "execveat"},
    {SYS_chdir, RESULT, 0, -1, "chdir"},
    {SYS_fchdir, RESULT, -1, 0, "chdir"},
    {SYS_chroot, RESULT, 0, -1, "chroot"},
    {SYS_pivot_root, RESULT, -1, -1, "pivot_root"},
    {SYS_mount, RESULT, -1, -1, "mount"},
    {429, RESULT, -1, -1, "move_mount"},
    {SYS_setns, RESULT, -1, -1, "setns"},
    {SYS_unshare, RESULT, -1, -1, "unshare"},
    {SYS_open_by_handle_at, RESULT, -1, -1, "open_by_handle_at"},
    {425, RESULT, -1, -1, "io_uring_setup"},
};
enum { MANY = sizeof CALLS / sizeof *CALLS };

struct process { /* one process, threads and all */
    struct process *next;
    pid_t pid;
    int log, tasks;
    char **said; /* an open hash of what was said of its present program */
    size_t room, held;
    int lost; /* something could not be written */
};
struct task { /* one thread */
    struct task *next;
    pid_t tid;
    struct process *process;
    int waits;         /* for the end of a call: `half` is what is said of it then */
    char *half;
    int number;        /* of that call */
    int peeked;        /* a call whose path only ptrace may read: 1 it is to be stopped, 2 it was said */
    uint64_t at;       /* where that path lies */
};

static struct process *processes[1024];
static struct task *tasks[1024];
static const char *prefix;
static int listener = -1;

/* What is written ------------------------------------------------------------------------------------------------- */

/* Too many files are open: each log is opened again when it is needed. */
static void close_logs(void)
{
    for (int i = 0; i < 1024; i++)
        for (struct process *each = processes[i]; each != NULL; each = each->next)
            if (each->log >= 0)
                close(each->log), each->log = -1;
}

static int opened(struct process *process)
{
    char name[PATH];
    if (process->log >= 0)
        return process->log;
    snprintf(name, sizeof name, "%s.%d", prefix, process->pid);
    for (int again = 0; again < 2; again++) {
        process->log = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (process->log >= 0 || (errno != EMFILE && errno != ENFILE))
            break;
        close_logs();
    }
    if (process->log >= 0)
        lseek(process->log, 0, SEEK_END);
    return process->log;
}

static int whole(int log, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t done = write(log, text, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        text += done, size -= (size_t)done;
    }
    return 0;
}

/* Write one line. Where that fails (a full disk), the log's first line is spoilt in its place: a log that has lost
 * something must not look whole. */
static void line(struct process *process, const char *text)
{
    char buffer[LINE + 64];
    struct timespec now;
    int log = opened(process);
    clock_gettime(CLOCK_REALTIME, &now);
    int size = snprintf(buffer, sizeof buffer, "%lld.%06ld %s\n", (long long)now.tv_sec, now.tv_nsec / 1000, text);
    if (size >= (int)sizeof buffer || log < 0 || whole(log, buffer, (size_t)size) != 0) {
        if (log >= 0 && !process->lost)
            (void)!pwrite(log, "!!! lost: ", 10, 0);
        process->lost = 1;
    }
}

static uint64_t hash(const char *text)
{
    uint64_t found = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++)
        found = (found ^ (unsigned char)*text) * 1099511628211u;
    return found;
}

static void forget(struct process *process)
{
    for (size_t i = 0; i < process->room; i++)
        free(process->said[i]);
    free(process->said);
    process->said = NULL, process->room = process->held = 0;
}

/* Tell whether this was not said before of the process's program, and remember it. */
static int fresh(struct process *process, const char *text)
{
    if (process->held >= MOST)
        forget(process); /* what is said twice is no harm */
    if (process->held * 2 >= process->room) {
        size_t room = process->room ? process->room * 2 : 1024;
        char **more = calloc(room, sizeof *more);
        if (more == NULL)
            return 1;
        for (size_t i = 0; i < process->room; i++) {
            if (process->said[i] == NULL)
                continue;
            size_t place = hash(process->said[i]) % room;
            while (more[place] != NULL)
                place = (place + 1) % room;
            more[place] = process->said[i];
        }
        free(process->said);
        process->said = more, process->room = room;
    }
    size_t place = hash(text) % process->room;
    while (process->said[place] != NULL) {
        if (strcmp(process->said[place], text) == 0)
            return 0;
        place = (place + 1) % process->room;
    }
    process->said[place] = strdup(text);
    process->held += process->said[place] != NULL;
    return 1;
}

static void say(struct process *process, const char *text)
{
    if (fresh(process, text))
        line(process, text);
}

/* Who there is ---------------------------------------------------------------------------------------------------- */

static pid_t group(pid_t tid)
{
    char name[64], text[1024];
    snprintf(name, sizeof name, "/proc/%d/status", tid);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    if (size > 0) {
        text[size] = 0;
        char *found = strstr(text, "\nTgid:");
        if (found != NULL)
            return (pid_t)atoi(found + 6);
    }
    return tid;
}

static struct process *process_of(pid_t pid)
{
    struct process **place = &processes[pid % 1024];
    for (struct process *each = *place; each != NULL; each = each->next)
        if (each->pid == pid)
            return each;
    struct process *made = calloc(1, sizeof *made);
    if (made == NULL)
        abort();
    made->pid = pid, made->log = -1, made->next = *place;
    return *place = made;
}

static struct task *task_of(pid_t tid)
{
    struct task **place = &tasks[tid % 1024];
    for (struct task *each = *place; each != NULL; each = each->next)
        if (each->tid == tid)
            return each;
    struct task *made = calloc(1, sizeof *made);
    if (made == NULL)
        abort();
    made->tid = tid, made->process = process_of(group(tid)), made->next = *place;
    made->process->tasks++;
    return *place = made;
}

static void gone(struct task *task)
{
    struct process *process = task->process;
    for (struct task **each = &tasks[task->tid % 1024]; *each != NULL; each = &(*each)->next)
        if (*each == task) {
            *each = task->next;
            break;
        }
    free(task->half);
    free(task);
    if (--process->tasks > 0)
        return;
    for (struct process **each = &processes[process->pid % 1024]; *each != NULL; each = &(*each)->next)
        if (*each == process) {
            *each = process->next;
            break;
        }
    forget(process);
    if (process->log >= 0)
        close(process->log);
    free(process);
}

/* What a call says ------------------------------------------------------------------------------------------------ */

static const struct call *call_of(int number)
{
    for (int i = 0; i < MANY; i++)
        if (CALLS[i].number == number)
            return &CALLS[i];
    return NULL;
}

/* Read a string of a thread. Returns its length, -1 where there is none (the call fails, too), -2 where it may not be
 * read so: then ptrace may, while the thread is `stopped`. */
static int string(pid_t tid, uint64_t at, char *text, int stopped)
{
    int size = 0;
    while (size < PATH) {
        size_t step = 4096 - (at + (unsigned)size) % 4096;
        if (size == 0 && step > 256)
            step = 256;
        if (step > (size_t)(PATH - size))
            step = (size_t)(PATH - size);
        struct iovec here = {text + size, step}, there = {(void *)(at + (unsigned)size), step};
        ssize_t got = process_vm_readv(tid, &here, 1, &there, 1, 0);
        if (got <= 0 && (errno == EFAULT || errno == ESRCH))
            return -1;
        if (got <= 0 && !stopped)
            return -2;
        if (got <= 0) { /* its user is another one: ptrace reads it where it could attach */
            uint64_t from = at + (unsigned)size, skip = from % sizeof(long);
            errno = 0;
            long word = ptrace(PTRACE_PEEKDATA, tid, (void *)(from - skip), NULL);
            if (errno != 0)
                return errno == ESRCH ? -1 : -2;
            got = (ssize_t)(sizeof word - skip < step ? sizeof word - skip : step);
            memcpy(text + size, (char *)&word + skip, (size_t)got);
        }
        char *end = memchr(text + size, 0, (size_t)got);
        if (end != NULL)
            return (int)(end - text);
        size += (int)got;
    }
    return -1; /* no path is so long */
}

static char *escaped(char *to, const char *from, int size)
{
    for (int i = 0; i < size; i++) {
        unsigned char c = (unsigned char)from[i];
        if (c < 32 || c > 126 || c == '"' || c == '\\' || c == '<' || c == '>')
            to += sprintf(to, "\\%03o", c);
        else
            *to++ = (char)c;
    }
    *to = 0;
    return to;
}

/* Put the directory that a path is relative to before it. Returns the size of both, 0 where the call must fail, -1 where
 * the directory can't be told. */
static int absolute(char *path, int size, pid_t tid, int base)
{
    char name[64], where[PATH];
    if (base == AT_FDCWD)
        snprintf(name, sizeof name, "/proc/%d/cwd", tid);
    else
        snprintf(name, sizeof name, "/proc/%d/fd/%d", tid, base);
    ssize_t before = readlink(name, where, sizeof where);
    if (before < 0)
        return base != AT_FDCWD && errno == ENOENT ? 0 : -1;
    if (before == sizeof where)
        return -1;
    if (size == 0 || before == 1) /* fchdir; the root */
        before -= size != 0;
    else
        where[before++] = '/';
    if (size != 0 && before == 0)
        where[before++] = '/';
    memmove(path + before, path, (size_t)size);
    memcpy(path, where, (size_t)before);
    return (int)before + size;
}

static uint64_t flags_of(pid_t tid, const struct call *call, const uint64_t *values)
{
    uint64_t flags = call->number == SYS_openat ? values[2] : values[1];
    if (call->number == SYS_creat)
        flags = O_WRONLY | O_CREAT;
    if (call->number == 437) {
        struct iovec here = {&flags, sizeof flags}, there = {(void *)values[2], sizeof flags};
        if (process_vm_readv(tid, &here, 1, &there, 1, 0) != sizeof flags)
            flags = 0; /* read is more than only looked for */
    }
    return flags;
}

/* What stands behind a link that the kernel makes for a process (proc(5): cwd, fd) is the name of another file: put where
 * it leads to in its place. Returns the size, -1 where that can't be told. */
static int followed(char *path, int size, pid_t tid)
{
    path[size] = 0;
    if (strncmp(path, "/proc/", 6) != 0)
        return size;
    char *who = path + 6, *link = strchr(who, '/'), *rest;
    size_t digits = strspn(who, "0123456789");
    if (link == NULL)
        return size;
    size_t name = (size_t)(link++ - who);
    int own = (name == 4 && strncmp(who, "self", 4) == 0) || (name == 11 && strncmp(who, "thread-self", 11) == 0);
    int base = AT_FDCWD;
    if (!own && digits != name)
        return size;
    if (strncmp(link, "cwd/", 4) == 0) {
        rest = link + 4;
    } else if (strncmp(link, "fd/", 3) == 0) {
        base = (int)strtol(link + 3, &rest, 10);
        if (rest == link + 3 || *rest++ != '/')
            return size;
    } else {
        return size;
    }
    if (*rest == 0)
        return size; /* the link itself */
    pid_t of = own ? tid : (pid_t)atoi(who);
    size -= (int)(rest - path);
    memmove(path, rest, (size_t)size);
    return absolute(path, size, of, base);
}

static char named_path[2 * PATH + 1]; /* that of the call that was put into words last, and how it is opened */
static uint64_t named_flags;

/* Put a call into words; each path in them is absolute. Returns 1; 0 where it names nothing; -1 where the directory of
 * its path can't be told; -2 where its path can't be read so. */
static int worded(char *to, pid_t tid, const struct call *call, const uint64_t *values, int stopped)
{
    char *path = named_path;
    int size = 0, named = call->path >= 0 || call->base >= 0;
    to += sprintf(to, "%s(%s", call->name, call->path > 0 && call->base >= 0 ? "AT_FDCWD, " : "");
    if (call->path >= 0) {
        size = string(tid, values[call->path], path, stopped);
        if (size < 0)
            return size == -2 ? -2 : 0;
        if (size == 0 && call->kind == LOOK) { /* a descriptor is asked, as fstat does: that the call is seen is said */
            strcpy(to, "\"\", ...");
            return 1;
        }
    }
    if (size > 0 && path[0] == '/') {
        size = followed(path, size, tid);
    } else if (named) {
        size = absolute(path, size, tid, call->base < 0 ? AT_FDCWD : (int)values[call->base]);
    }
    if (named && size <= 0)
        return size;
    if (named) {
        path[size] = 0;
        *to++ = '"';
        to = escaped(to, path, size);
        *to++ = '"', *to = 0;
    }
    if (call->kind == OPEN) {
        uint64_t flags = named_flags = flags_of(tid, call, values);
        sprintf(to, ", %s%s%s",
                (flags & O_ACCMODE) == O_RDWR ? "O_RDWR" : flags & O_ACCMODE ? "O_WRONLY" : "O_RDONLY",
                flags & O_PATH ? "|O_PATH" : "", flags & O_DIRECTORY ? "|O_DIRECTORY" : "");
    } else if (call->number == SYS_unshare && values[0] & 0x20000)
        sprintf(to, "CLONE_NEWNS");
    else if (call->number != SYS_fchdir && call->number != SYS_chdir)
        sprintf(to, named ? ", ..." : "...");
    return 1;
}

static const char UNREAD[] = "+++ not seen: a path that it named could not be read +++";
static const char UNKNOWN[] = "+++ not seen: a path is relative to a directory that could not be told +++";
static const char OTHER[] = "+++ not seen: it makes system calls of another architecture +++";

static char *resulting(char *to, long error)
{
    if (error == ENOENT || error == ENOTDIR || error == EACCES)
        return to + sprintf(to, ") = -1 %s", error == ENOENT ? "ENOENT" : error == ENOTDIR ? "ENOTDIR" : "EACCES");
    return to + sprintf(to, ") = -1 E%ld", error);
}

static char *leading(char *to, const char *path, int size)
{
    *to++ = '<';
    to = escaped(to, path, size);
    *to++ = '>', *to = 0;
    return to;
}

static int same_user(pid_t tid)
{
    char name[64];
    struct stat is;
    snprintf(name, sizeof name, "/proc/%d", tid);
    return stat(name, &is) == 0 && is.st_uid == geteuid();
}

/* A file is about to be opened: tell how that will end, and where its name leads to now, by opening it as a mere place.
 * What can't be told counts as opened. Returns -1 where its name leads to what only the program itself can tell. */
static int probed(char *to, pid_t tid)
{
    char name[2 * PATH + 32], where[PATH];
    const char *path = named_path, *rest = NULL;
    int access = named_flags & O_ACCMODE;
    int own = 1, mode = access == O_WRONLY ? W_OK : access == O_RDWR ? R_OK | W_OK : R_OK;
    if (strncmp(path, "/proc/self/", 11) == 0)
        rest = path + 10;
    else if (strncmp(path, "/proc/thread-self/", 18) == 0)
        rest = path + 17;
    else if (strncmp(path, "/dev/fd/", 8) == 0)
        rest = path + 4;
    else if (strcmp(path, "/dev/stdin") == 0)
        rest = "/fd/0";
    else if (strcmp(path, "/dev/stdout") == 0)
        rest = "/fd/1";
    else if (strcmp(path, "/dev/stderr") == 0)
        rest = "/fd/2";
    else
        own = 0;
    if (own)
        snprintf(name, sizeof name, "/proc/%d%s", tid, rest);
    else
        strcpy(name, path);
    int place = O_PATH | O_CLOEXEC | (int)(named_flags & (O_DIRECTORY | O_NOFOLLOW));
    int file = open(name, place);
    if (file < 0 && (errno == EMFILE || errno == ENFILE)) {
        close_logs();
        file = open(name, place);
    }
    if (file < 0) {
        int error = errno, makes = (named_flags & O_CREAT) != 0 && error == ENOENT;
        if ((error == ENOENT || error == ENOTDIR || (error == EACCES && !own && same_user(tid))) && !makes)
            resulting(to, error);
        else
            strcpy(to, ") = ?");
        return (own && error != ENOENT) || error == EMFILE || error == ENFILE ? -1 : 0;
    }
    int refused = 0;
    if ((named_flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
        refused = EEXIST;
    else if (!(named_flags & O_PATH) && !own && syscall(439, file, "", mode, AT_EACCESS | AT_EMPTY_PATH) != 0)
        refused = errno == EACCES ? EACCES : 0; /* faccessat2, since Linux 5.8 */
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t size = readlink(name, where, sizeof where);
    close(file);
    if (refused) {
        resulting(to, refused);
        return 0;
    }
    to += sprintf(to, ") = ?");
    if (size < 0 || size == sizeof where)
        return -1;
    if (where[0] == '/')
        leading(to, where, (int)size);
    return where[0] == '/' || own || mode == W_OK ? 0 : -1; /* through a link to /dev/stdin: to a descriptor of ours */
}

/* A name was looked for, or is about to be opened. Returns -2 where it can only be read from a stopped thread. */
static int looked(struct task *task, int number, const uint64_t *values, int stopped)
{
    char text[LINE];
    for (int i = 0; i < MANY; i++) {
        if (CALLS[i].number != number)
            continue;
        int said = worded(text, task->tid, &CALLS[i], values, stopped);
        if (said == -2 && !stopped)
            return -2;
        if (said == 1 && CALLS[i].kind == LOOK)
            strcat(text, ") = ?");
        else if (said == 1 && probed(text + strlen(text), task->tid) != 0)
            say(task->process, UNKNOWN);
        if (said != 0)
            say(task->process, said == 1 ? text : said == -1 ? UNKNOWN : UNREAD);
    }
    return 0;
}

/* A call ended whose result matters. */
static void ended(struct task *task, long result)
{
    char text[LINE];
    if (task->half == NULL)
        return;
    int opens = task->number == SYS_openat || task->number == SYS_open || task->number == SYS_creat || task->number == 437;
    if (result == LONG_MAX && !opens)
        snprintf(text, sizeof text, "%s) = ?", task->half);
    else if (result < 0 && result > -4096)
        resulting(text + sprintf(text, "%s", task->half), -result);
    else if (opens) { /* no number: what is relative to it names its directory; but where the name led to */
        char path[2 * PATH], *to = text + sprintf(text, "%s) = ?", task->half);
        int size = result < 0 || result > 0x7fffffff ? -1 : absolute(path, 0, task->tid, (int)result);
        if (size > 0)
            leading(to, path, size);
    } else
        snprintf(text, sizeof text, "%s) = %ld", task->half, result);
    if (task->number == SYS_execve || task->number == SYS_execveat) {
        if (result == 0)
            forget(task->process); /* another program */
        line(task->process, text);
    } else if (opens) {
        say(task->process, text);
    } else {
        line(task->process, text);
    }
    free(task->half);
    task->half = NULL;
}

/* Stops ----------------------------------------------------------------------------------------------------------- */

/* A thread is at a call that the filter sends to ptrace. Returns whether its end is to be seen. */
static int called(struct task *task, unsigned long kind)
{
    struct user_regs_struct r;
    char text[LINE];
    if (kind == FOREIGN || ptrace(PTRACE_GETREGS, task->tid, NULL, &r) != 0) {
        say(task->process, kind == FOREIGN ? OTHER : UNREAD);
        return 0;
    }
    const uint64_t values[] = {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9};
    int number = (int)r.orig_rax;
    if (kind == LOOK) {
        looked(task, number, values, 1);
        return 0;
    }
    const struct call *call = call_of(number);
    int said = call == NULL ? -1 : worded(text, task->tid, call, values, 1);
    if (said < 0)
        say(task->process, said == -1 ? UNKNOWN : UNREAD);
    free(task->half);
    task->half = said == 1 ? strdup(text) : NULL;
    task->number = number;
    if (said == 1 && task->half == NULL)
        say(task->process, UNREAD);
    return task->half != NULL;
}

/* A signal is about to be handled. Where it broke into the wait for our answer, the call must begin again when the
 * handler is done, whatever sigaction(2) says: no stat fails with EINTR where nobody listens. */
static void uninterrupted(pid_t tid)
{
    struct user_regs_struct r;
    if (listener < 0 || ptrace(PTRACE_GETREGS, tid, NULL, &r) != 0 || (long)r.rax != -512) /* ERESTARTSYS */
        return;
    const struct call *call = call_of((int)r.orig_rax);
    if (call == NULL || call->kind == RESULT)
        return;
    r.rax = (unsigned long)-513; /* ERESTARTNOINTR */
    ptrace(PTRACE_SETREGS, tid, NULL, &r);
}

static void stopped(pid_t tid, int status)
{
    struct task *task = task_of(tid);
    struct user_regs_struct r;
    int event = status >> 16, signal = WSTOPSIG(status);
    unsigned long message = 0;
    int on = PTRACE_CONT, peeked = task->peeked;
    char text[64];
    task->peeked = 0; /* a signal can end the call for good */
    if (event != 0 && event != PTRACE_EVENT_STOP)
        ptrace(PTRACE_GETEVENTMSG, tid, NULL, &message);
    if (event == PTRACE_EVENT_SECCOMP) {
        on = called(task, message) ? PTRACE_SYSCALL : PTRACE_CONT;
    } else if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
        if (syscall(SYS_tgkill, task->process->pid, (pid_t)message, 0) != 0) { /* no thread of its own */
            snprintf(text, sizeof text, "clone(...) = %lu", message);
            line(task->process, text);
        }
        if (task->half != NULL)
            on = PTRACE_SYSCALL;
    } else if (event == PTRACE_EVENT_EXEC) {
        struct task *before = (pid_t)message == tid ? task : task_of((pid_t)message);
        if (before->half == NULL)
            line(task->process, UNREAD);
        if (before != task)
            ended(task, LONG_MAX);
        ended(before, 0);
        if (before != task)
            gone(before); /* the thread goes on under the number of its process */
    } else if (event == PTRACE_EVENT_STOP) {
        if (signal != SIGTRAP)
            on = PTRACE_LISTEN; /* it is stopped as by a shell */
        else if (peeked == 1 && ptrace(PTRACE_GETREGS, tid, NULL, &r) == 0 && (int)r.orig_rax == task->number) {
            const uint64_t values[] = {r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9};
            if (values[call_of(task->number)->path] == task->at) {
                looked(task, task->number, values, 1);
                task->peeked = 2;
            }
        }
        if (on == PTRACE_CONT && task->half != NULL)
            on = PTRACE_SYSCALL;
        signal = 0;
    } else if (signal == (SIGTRAP | 0x80)) {
        if (ptrace(PTRACE_GETREGS, tid, NULL, &r) == 0)
            ended(task, (long)r.rax);
    } else { /* a signal, which it gets */
        uninterrupted(tid);
        ptrace(task->half != NULL ? PTRACE_SYSCALL : PTRACE_CONT, tid, NULL, signal);
        return;
    }
    ptrace(on, tid, NULL, 0);
}

static const char *signalled(int number)
{
    static char other[16];
    sprintf(other, "%d", number);
    return number == SIGKILL   ? "KILL"
           : number == SIGTERM ? "TERM"
           : number == SIGINT  ? "INT"
           : number == SIGSEGV ? "SEGV"
           : number == SIGABRT ? "ABRT"
           : number == SIGBUS  ? "BUS"
                               : other;
}

static void left(pid_t tid, int status)
{
    struct task *task = task_of(tid);
    char text[64];
    if (task->half != NULL)
        ended(task, LONG_MAX); /* how it ended nobody knows */
    if (task->process->pid == tid) {
        if (WIFEXITED(status))
            snprintf(text, sizeof text, "+++ exited with %d +++", WEXITSTATUS(status));
        else
            snprintf(text, sizeof text, "+++ killed by SIG%s +++", signalled(WTERMSIG(status)));
        line(task->process, text);
    }
    gone(task);
}

static void notified(void)
{
    static struct { struct seccomp_notif its; char more[512]; } all; /* newer kernels may have more to say */
    struct seccomp_notif *its = &all.its;
    memset(&all, 0, sizeof all);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, its) != 0)
        return; /* the thread was interrupted, or is no more */
    struct task *task = task_of((pid_t)its->pid);
    const struct call *call = call_of(its->data.nr);
    uint64_t at = call == NULL ? 0 : its->data.args[call->path];
    if (task->peeked == 2 && task->number == its->data.nr && task->at == at) {
        task->peeked = 0;
    } else if (looked(task, its->data.nr, (const uint64_t *)its->data.args, 0) == -2) {
        task->peeked = 1, task->number = its->data.nr, task->at = at;
        if (ptrace(PTRACE_INTERRUPT, task->tid, NULL, NULL) == 0)
            return; /* its call begins again when it was stopped */
        say(task->process, UNREAD);
    }
    struct seccomp_notif_resp answer = {.id = its->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

static void on_child(int signal)
{
    (void)signal;
}

static void follow(void)
{
    sigset_t none;
    struct pollfd from = {listener, POLLIN, 0};
    sigemptyset(&none);
    for (;;) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL | (listener < 0 ? 0 : WNOHANG));
        if (tid < 0 && errno == ECHILD)
            _exit(0);
        if (tid > 0) {
            if (WIFSTOPPED(status))
                stopped(tid, status);
            else
                left(tid, status);
            continue;
        }
        for (int i = 0; i < 16 && ppoll(&from, 1, NULL, &none) > 0; i++) { /* SIGCHLD comes in here alone */
            if (from.revents & POLLIN)
                notified();
            else
                from.fd = -1; /* nobody has the filter any more */
        }
    }
}

/* The start ------------------------------------------------------------------------------------------------------- */

static int filtered(unsigned action, unsigned flags)
{
    struct sock_filter code[MANY + 8];
    int n = 0, slow = action != SECCOMP_RET_USER_NOTIF;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, MANY + 5);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, MANY + 3, 0);
    for (int i = 0; i < MANY; i++, n++) /* the look, if it is one, lies behind the pass; the result behind that */
        code[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)CALLS[i].number,
                                               (unsigned char)(MANY - i + (CALLS[i].kind == RESULT || (CALLS[i].kind == OPEN && slow))),
                                               0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | RESULT);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | FOREIGN);
    struct sock_fprog program = {(unsigned short)n, code};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static void die(const char *what)
{
    fprintf(stderr, "imgdiff: system calls can't be recorded: %s: %s\n", what, strerror(errno));
    exit(125);
}

static void sent(int through, int descriptor)
{
    char byte = descriptor < 0 ? 'n' : 'y', room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = room, message.msg_controllen = sizeof room;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    if (sendmsg(through, &message, 0) != 1)
        die("sendmsg");
}

static int received(int through)
{
    char byte = 0, room[CMSG_SPACE(sizeof(int))];
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(through, &message, MSG_CMSG_CLOEXEC) != 1)
        _exit(0); /* the program could not be started */
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int descriptor = -1;
    if (byte == 'y' && header != NULL)
        memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
}

static void watch(pid_t program, int through)
{
    sigset_t all;
    struct sigaction child = {.sa_handler = on_child};
    struct rlimit files;
    uint64_t options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                       PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP;
    for (int i = 0; i < 3; i++) /* who waits for the end of a pipe must not wait for us; and no file is mistaken for it */
        if (through != i && dup2(through, i) < 0)
            close(i);
    syscall(436, 3, through - 1, 0); /* close_range, since Linux 5.9 */
    syscall(436, through + 1, ~0U, 0);
    sigfillset(&all); /* what is sent to a whole group, or to all, is for the program */
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigaction(SIGCHLD, &child, NULL);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    listener = received(through);
    if (ptrace(PTRACE_SEIZE, program, NULL, options) != 0) {
        (void)!write(through, &errno, sizeof errno);
        _exit(1);
    }
    if (listener >= 0) /* since Linux 6.6; before that it works and takes longer */
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, (unsigned long)SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
    int none = 0;
    if (write(through, &none, sizeof none) != sizeof none)
        _exit(1);
    close(through);
    follow();
}

static const char *found(const char *name)
{
    static char path[PATH];
    struct stat is;
    const char *rest = getenv("PATH");
    if (strchr(name, '/') != NULL)
        return name;
    for (rest = rest != NULL ? rest : "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"; rest != NULL;) {
        const char *end = strchrnul(rest, ':');
        int size = (int)(end - rest);
        snprintf(path, sizeof path, "%.*s/%s", size ? size : 1, size ? rest : ".", name);
        if (stat(path, &is) == 0 && S_ISREG(is.st_mode) && access(path, X_OK) == 0)
            return path;
        rest = *end ? end + 1 : NULL;
    }
    return name;
}

int main(int count, char **words)
{
    int option, pair[2], answer = 0, major = 0, minor = 0, plain = 0;
    struct utsname kernel;
    while ((option = getopt(count, words, "+o:E:p")) != -1) {
        if (option == 'o')
            prefix = optarg;
        else if (option == 'E' && strchr(optarg, '=') != NULL)
            putenv(optarg);
        else if (option == 'p')
            plain = 1; /* no notifications */
        else
            return 125;
    }
    if (prefix == NULL || optind == count) {
        fprintf(stderr, "tracer -o PREFIX [-E NAME=VALUE]... -- PROGRAM [ARGUMENT]...\n");
        return 125;
    }
    if (uname(&kernel) != 0 || sscanf(kernel.release, "%d.%d", &major, &minor) != 2 || major < 4 ||
        (major == 4 && minor < 8)) {
        errno = ENOSYS;
        die("the kernel is older than 4.8; IMGDIFF_STRACE names a strace to take instead");
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        die("socketpair");
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pid_t self = getpid(), between = fork();
    if (between < 0)
        die("fork");
    if (between == 0) {
        close(pair[0]);
        if (fork() == 0)
            watch(self, pair[1]);
        _exit(0);
    }
    close(pair[1]);
    waitpid(between, NULL, 0);
    const char *program = found(words[optind]);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        die("PR_SET_NO_NEW_PRIVS");
    if (major == 4 || (major == 5 && minor < 5))
        plain = 1; /* a notification could not let the call go on */
    int notifications = plain ? -1 : filtered(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
    if (notifications < 0 && filtered(SECCOMP_RET_TRACE | LOOK, 0) != 0)
        die("seccomp");
    sent(pair[0], notifications);
    if (notifications >= 0)
        close(notifications);
    if (read(pair[0], &answer, sizeof answer) != sizeof answer || answer != 0) {
        errno = answer;
        die("ptrace");
    }
    close(pair[0]);
    prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    execv(program, words + optind);
    fprintf(stderr, "imgdiff: %s: %s\n", words[optind], strerror(errno));
    return errno == ENOENT ? 127 : 126;
}
