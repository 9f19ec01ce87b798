// Numbers of the system calls that relay.c makes besides those of init.c.
#if defined(__x86_64__)
#define SYS_signalfd4 289
#else
#define SYS_signalfd4 74
#endif
