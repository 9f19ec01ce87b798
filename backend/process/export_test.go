package process

// WithoutCgroup makes a backend see no control groups.
func WithoutCgroup(c *Config) { c.testOnlyNoCgroup = true }

// WithoutNamespaces makes a backend find that namespaces cannot be made.
func WithoutNamespaces(c *Config) { c.testOnlyNoNamespaces = true }
