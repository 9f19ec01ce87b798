package kernel

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Bounds of a caller's environment.
const (
	maxEnvEntries = 128
	maxEnvValue   = 64 << 10  // bytes
	maxEnvAll     = 180 << 10 // bytes, names and values
	wholeEnv      = 2         // times as much is what a program may have in all
)

// Names that steer a loader, an interpreter or a tool, and so are not a
// caller's to set. A prefix ends with *.
var deniedEnv = []string{
	"LD_*", "DYLD_*", "GLIBC_TUNABLES", "MALLOC_*", "GCONV_PATH", "LOCPATH", "NLSPATH",
	"PATH", "HOME", "PWD", "OLDPWD", "IFS", "ENV", "BASH_ENV", "BASH_FUNC_*", "BASHOPTS", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "CDPATH",
	"NODE_OPTIONS", "NODE_PATH", "NODE_CHANNEL_*", "NODE_EXTRA_CA_CERTS", "NODE_V8_COVERAGE", "NODE_REPL_*",
	"PYTHON*", "PERL5*", "PERLLIB", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "GIT_*", "SSL_CERT_*", "OPENSSL_CONF", "OPENSSL_MODULES",
}

// CheckEnv refuses, with invalid_argument, what may not be added to a program's
// environment: names that are not [A-Za-z_][A-Za-z0-9_]*, names that steer a
// loader or an interpreter, values with a NUL, and too much of it. A proxy is the
// program's own affair: what it reaches is decided elsewhere. The
// message names the entry and never its value.
func CheckEnv(env map[string]string) error { return checkEnv(env, 1) }

// checkEnv is CheckEnv with so many times its bounds: what secrets and the network
// add to a caller's environment is not the caller's.
func checkEnv(env map[string]string, times int) error {
	if len(env) > times*maxEnvEntries {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env has %d entries; %d are allowed", len(env), times*maxEnvEntries)
	}
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	slices.Sort(names) // the same complaint every time
	all := 0
	for _, name := range names {
		value := env[name]
		all += len(name) + len(value)
		switch {
		case !isEnvName(name):
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env name %s is not of the form [A-Za-z_][A-Za-z0-9_]*", sandboxmcp.Quote(name))
		case isDeniedEnv(name):
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env %s may not be set: it steers the interpreter or its tools", sandboxmcp.Quote(name))
		case strings.ContainsRune(value, 0):
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env %s has a NUL in its value", sandboxmcp.Quote(name))
		case len(value) > maxEnvValue:
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env %s has %d bytes; %d are allowed", sandboxmcp.Quote(name), len(value), maxEnvValue)
		}
	}
	if all > times*maxEnvAll {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env has %d bytes in all; %d are allowed", all, times*maxEnvAll)
	}
	return nil
}

func isEnvName(s string) bool {
	if s == "" || len(s) > 256 || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

func isDeniedEnv(name string) bool {
	return slices.ContainsFunc(deniedEnv, func(rule string) bool {
		prefix, wild := strings.CutSuffix(rule, "*")
		return name == rule || wild && strings.HasPrefix(name, prefix)
	})
}

// SearchPath is where programs look for others, after the directory of their own
// interpreter.
const SearchPath = "/usr/local/bin:/usr/bin:/bin"

// Surroundings is what every program of every language finds in its environment
// and no caller sets, but for PATH, which begins with its interpreter's directory.
func Surroundings() map[string]string {
	return map[string]string{
		"LANG": "C.UTF-8", "HOME": backend.TempDir, "TMPDIR": backend.TempDir, "USER": "sandbox",
		"PWD": backend.WorkDir, "SANDBOX_OUTPUT_DIR": backend.WorkDir,
	}
}

// environment builds a program's whole environment from nothing: what every
// language has, what its driver adds, what the caller adds.
func environment(p Program, driver map[string]string) []string {
	search := SearchPath
	if bin := path.Dir(p.Interpreter); !slices.Contains(strings.Split(search, ":"), bin) {
		search = bin + ":" + search
	}
	all := Surroundings()
	all["PATH"] = search
	if p.Language != sandboxmcp.Python && len(p.Sets) > 0 { // python's driver does it later
		var dirs []string
		for _, set := range p.Sets {
			dirs = append(dirs, set+"/site-packages")
		}
		all["PYTHONPATH"] = strings.Join(dirs, ":")
	}
	for _, more := range []map[string]string{driver, p.Defaults, p.Env} {
		maps.Copy(all, more)
	}
	env := make([]string, 0, len(all))
	for k, v := range all {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	return env
}
