/* A machine at its limit of processes: no process that preloads this starts a thread. */
#include <errno.h>
#include <pthread.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *given) {
  (void)thread, (void)how, (void)run, (void)given;
  return EAGAIN;
}
