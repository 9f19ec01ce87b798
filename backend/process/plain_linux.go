package process

import "os"

// plainReadable is what code may read of the host in tier L1: programs and
// libraries, and the parts of /etc that they need. Not /proc, not /etc as a
// whole, nobody's home.
func plainReadable(extra []string) []string {
	all := append([]string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
		"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types",
		"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/fonts",
	}, extra...)
	there := all[:0]
	for _, p := range all {
		if _, err := os.Stat(p); err == nil {
			there = append(there, p)
		}
	}
	return there
}
