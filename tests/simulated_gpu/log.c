// Settings, and the log of calls that nothing implements; a part of each library.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((visibility("hidden"))) const char *sim_setting(const char *name)
{
    char variable[64];
    snprintf(variable, sizeof variable, "SIMULATED_GPU_%s", name);
    const char *value = getenv(variable);
    return value && *value ? value : NULL;
}

__attribute__((visibility("hidden"))) void sim_log_stub(const char *function)
{
    const char *path = sim_setting("LOG");
    if (!path)
        return;
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0)
        return;
    char line[256];
    int length = snprintf(line, sizeof line, "%d %s\n", (int)getpid(), function);
    // one call, so that lines of several threads and processes do not mix
    if (length > 0 && write(log, line, strlen(line)) < 0)
        perror(path);
    close(log);
}
