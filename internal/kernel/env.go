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
	maxEnvAll     = 180 << 10 // bytes of all names and values
	wholeEnv      = 2         // factor: the caller's variables with those of secrets and the network may be twice as large
)

// deniedEnv lists variables that a caller may not set, because they change how the
// loader, an interpreter or a tool works. A final * matches any suffix.
var deniedEnv = []string{
	"LD_*", "DYLD_*", "GLIBC_TUNABLES", "MALLOC_*", "GCONV_PATH", "LOCPATH", "NLSPATH",
	"PATH", "HOME", "PWD", "OLDPWD", "IFS", "ENV", "BASH_ENV", "BASH_FUNC_*", "BASHOPTS", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "CDPATH",
	"NODE_OPTIONS", "NODE_PATH", "NODE_CHANNEL_*", "NODE_EXTRA_CA_CERTS", "NODE_V8_COVERAGE", "NODE_REPL_*",
	"PYTHON*", "PERL5*", "PERLLIB", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "GIT_*", "SSL_CERT_*", "OPENSSL_CONF", "OPENSSL_MODULES",
}

// CheckEnv fails with invalid_argument if a caller's environment has a name that is not
// [A-Za-z_][A-Za-z0-9_]*, a name of deniedEnv, a value with a NUL, or too many bytes or
// entries. Proxy variables are allowed: they do not change which hosts a program can
// reach. The error names the entry and never its value.
func CheckEnv(env map[string]string) error { return checkEnv(env, 1) }

// checkEnv is CheckEnv with its bounds multiplied by times.
func checkEnv(env map[string]string, times int) error {
	if len(env) > times*maxEnvEntries {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env has %d entries; %d are allowed", len(env), times*maxEnvEntries)
	}
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	slices.Sort(names) // so that the same environment gives the same error
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

// SearchPath is the PATH of programs. The directories of the interpreter, and of the Python that
// "python" starts, come before it.
const SearchPath = "/usr/local/bin:/usr/bin:/bin"

// Surroundings returns the variables that every program of every language has, except
// PATH.
func Surroundings() map[string]string {
	env := map[string]string{
		"LANG": "C.UTF-8", "HOME": backend.TempDir, "TMPDIR": backend.TempDir, "USER": "sandbox",
		"PWD": backend.WorkDir, "SANDBOX_OUTPUT_DIR": backend.WorkDir,
		// Without these, pip and npm ask their registry for a newer version of themselves.
		"PIP_DISABLE_PIP_VERSION_CHECK": "1", "NPM_CONFIG_UPDATE_NOTIFIER": "false",
	}
	maps.Copy(env, backend.Proxies())
	return env
}

// environment returns the whole environment of a program: Surroundings, PATH, the
// variables of its driver, the defaults, and those of the caller. Later ones win.
func environment(p Program, driver map[string]string) []string {
	search := SearchPath
	for _, program := range []string{p.Interpreter, p.Python} {
		if bin := path.Dir(program); program != "" && !slices.Contains(strings.Split(search, ":"), bin) {
			search = bin + ":" + search
		}
	}
	if len(p.Names) > 0 {
		search = backend.ProgramDir + ":" + search
	}
	all := Surroundings()
	all["PATH"] = search
	if p.Language != sandboxmcp.Python && len(p.Sets) > 0 { // the Python driver sets them later
		var dirs []string
		for _, set := range p.Sets {
			dirs = append(dirs, set+"/site-packages")
		}
		all["PYTHONPATH"] = strings.Join(dirs, ":")
	}
	if p.Language == sandboxmcp.Node || len(p.Modules) > 0 {
		all["NODE_PATH"] = strings.Join(append([]string{backend.WorkDir + "/node_modules"}, p.Modules...), ":")
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
