package process

// WithoutCgroup makes a backend see no control groups.
func WithoutCgroup(c *Config) { c.testOnlyNoCgroup = true }

// WithEpollWatches makes a backend believe that a user may have so many epoll watches.
func WithEpollWatches(c *Config, n int) { c.testOnlyEpollWatches = n }

// WithoutNamespaces makes a backend find that namespaces cannot be made.
func WithoutNamespaces(c *Config) { c.testOnlyNoNamespaces = true }
