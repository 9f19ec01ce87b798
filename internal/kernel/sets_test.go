package kernel_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// versionOf asks an interpreter.
func versionOf(t testing.TB, python string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// A package of a set is imported, before one of the same name that is the
// machine's; what its packages would work out is where they look for it; and
// interpreters that the program starts find the set as well.
func TestPythonSets(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		real, err := filepath.EvalSymlinks(python)
		if err != nil {
			t.Fatal(err)
		}
		set := t.TempDir()
		for name, text := range map[string]string{
			"site-packages/of_a_set.py": "says = 'set'\n", "site-packages/pip/__init__.py": "says = 'set too'\n", "site-packages/textwrap.py": "1/0\n", "site-packages/a.pth": "import sys; sys.stdout.write('pth was run')\n",
			"cache/fontlist-v1.json": "{}",
		} {
			p := filepath.Join(set, name)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		child := t.TempDir()
		if err := os.WriteFile(filepath.Join(child, "theirs.py"), []byte("says = 'theirs'\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		const code = `import os, subprocess, sys
import of_a_set, pip
print(of_a_set.says, pip.says, sys.argv == [sys.argv[0]], [k for k in os.environ if k.startswith("PYTHON") and k != "PYTHONPATH"], os.environ["KEPT"], os.environ["OVER"])
import textwrap
try: print(open(os.environ["MPLCONFIGDIR"] + "/fontlist-v1.json").read())
except OSError: print("none")
def start(code, *flags, **more):
    sys.stdout.flush()
    subprocess.run([sys.executable, *flags, "-c", code], env=dict(os.environ, **more), stderr=subprocess.DEVNULL)
start("import of_a_set; print(of_a_set.says, [k for k in __import__('os').environ if k == 'PYTHONPATH'])")
start("import of_a_set", "-I")
start("import theirs; print(theirs.says)", PYTHONPATH=os.environ["CHILD"])
start("import theirs, of_a_set; print(theirs.says, of_a_set.says)", PYTHONPATH=os.environ["CHILD"] + ":" + os.environ["PYTHONPATH"])
os.system("'%s' -c 'import of_a_set; print(of_a_set.says)'" % sys.executable)
`
		for what, version := range map[string]string{"site later": versionOf(t, real), "site at once": "3.9"} {
			p := kernel.Program{
				Language: sandboxmcp.Python, Code: code, Interpreter: real, Version: version, Sets: []string{"/nowhere", set},
				Env:      map[string]string{"OVER": "theirs", "CHILD": child},
				Defaults: map[string]string{"MPLCONFIGDIR": filepath.Join(t.TempDir(), "config"), "KEPT": "ours", "OVER": "ours"},
			}
			want := "set set too True ['PYTHONDONTWRITEBYTECODE'] ours theirs\n"
			if minorOf(version) >= 10 {
				want += "{}\n"
			} else { // there it makes its own
				want += "none\n"
			}
			want += "set ['PYTHONPATH']\ntheirs\ntheirs set\nset\n"
			if got := run(t, p); got.Stdout != want || got.Code != 0 {
				t.Errorf("%s: got %+v, want stdout %q", what, got, want)
			}
		}
	})
}

func minorOf(version string) int {
	n := 0
	for _, c := range strings.Split(version, ".")[1] {
		n = n*10 + int(c-'0')
	}
	return n
}

// Programs of the other languages find the set in a python that they start.
func TestSetsOfOthers(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		set := t.TempDir()
		if err := os.Mkdir(filepath.Join(set, "site-packages"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(set, "site-packages", "of_a_set.py"), []byte("print('set')\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for lang, code := range map[sandboxmcp.Language]string{
			sandboxmcp.Shell: "\"$WHICH\" -c 'import of_a_set'\n",
			sandboxmcp.Node:  "process.stdout.write(require('child_process').execFileSync(process.env.WHICH, ['-c', 'import of_a_set']))\n",
		} {
			binary, err := exec.LookPath(map[sandboxmcp.Language]string{sandboxmcp.Shell: "bash", sandboxmcp.Node: "node"}[lang])
			if err != nil {
				continue
			}
			p := kernel.Program{Language: lang, Code: code, Interpreter: binary, Sets: []string{"/nowhere", set}, Env: map[string]string{"WHICH": python}}
			if got := run(t, p); got.Stdout != "set\n" || got.Code != 0 {
				t.Errorf("%s: got %+v, want set", lang, got)
			}
			if p.Sets = nil; run(t, p).Code == 0 {
				t.Errorf("%s, without the set: got the package, want it missing", lang)
			}
		}
	})
}

// A program with a variable that packages read when they are imported has its packages
// imported with it, and not ahead. Other variables change nothing.
func TestPackagesSeeVariablesTheyReadWhenImported(t *testing.T) {
	for name, ahead := range map[string]bool{"API_KEY": true, "NUMPY_MADVISE_HUGEPAGE": false, "MPLBACKEND": false, "OMP_NUM_THREADS": false} {
		plan, err := kernel.Plan(kernel.Program{
			Code: "pass", Display: sandboxmcp.DisplayNone, Interpreter: "/usr/bin/python3", Version: "3.12.1",
			Trusted: true, Sets: []string{"/nowhere"}, Preload: []string{"numpy"}, Env: map[string]string{name: "1"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Prestart != nil && plan.Prestart.Fork != nil && plan.Prestart.Fork.Load != nil; got != ahead {
			t.Errorf("with %s: imported ahead %v, want %v", name, got, ahead)
		}
	}
}

// What runs before an interpreter is forked leaves the environment to the fork.
func TestPythonPreloadedEnvironment(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		got := loaded(t, python, "/nowhere", "import os; print(os.environ['LATER'], os.environ['USER'], 'EARLIER' in os.environ)")
		if want := "x sandbox False\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A program finds the same packages, whether it is executed or loads what a fork has imported: those of
// sets before those of the machine.
func TestPythonPreloadedPaths(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		set := t.TempDir()
		const code = "import sys; print(*sys.path[1:])"
		plan, at := preloads(t, python, set, code)
		main, boot := at.files(t, plan, string(plan.Program[1].Data))
		executed, err := exec.CommandContext(t.Context(), python, "-S", boot, "none", main, set).CombinedOutput()
		if err != nil || !strings.Contains(string(executed), set) {
			t.Fatalf("executed: got %v, %s; want %s among the paths", err, executed, set)
		}
		if got := loaded(t, python, set, code); got != string(executed) {
			t.Errorf("loaded: got %swant, as executed, %s", got, executed)
		}
	})
}

// commented returns what a fork server's text does itself, and the text that is its comments.
func commented(whole string) (itself, text string, found bool) {
	itself, text, found = strings.Cut(whole, "\n#")
	return itself + "\n", strings.ReplaceAll(text, "\n#", "\n"), found
}

// TestForkServerRunsItsComments: a child of a fork server compiles its code. If there is no child, or the child
// fails, the fork server compiles it. No name and no descriptor is left.
func TestForkServerRunsItsComments(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		plan, at := preloads(t, python, "/nowhere", "")
		itself, _, ok := commented(string(plan.Prestart.Program[0].Data))
		if !ok {
			t.Fatal("the fork server has no comments")
		}
		text := "import os, sys\nfds = os.listdir('/proc/self/fd')\nwhere = sys._getframe().f_code.co_filename == __file__\n" +
			"def begin():\n    print(where, 'load' in globals(), fds == os.listdir('/proc/self/fd'), len(compiles), sys._getframe().f_back.f_lineno)\n"
		const counts = "import builtins; compiles, real = [], compile; builtins.compile = lambda *a: compiles.append(1) or real(*a); "
		for name, c := range map[string]struct{ before, want string }{
			"InAProcess":      {"", "True False True 0 "},
			"WithoutAFork":    {"import posix; posix.fork = lambda: posix.open('/nowhere', 0); ", "True False True 1 "},
			"WithoutItsPipes": {"import posix; posix.pipe = lambda: posix.open('/nowhere', 0); ", "True False True 1 "},
			"NothingIsSent":   {"import marshal; marshal.dumps = None; ", "True False True 1 "},
			"HalfIsSent":      {"import posix; write = posix.write; posix.write = lambda fd, code: write(fd, code[:len(code) // 2]) and posix.kill(posix.getpid(), 9); ", "True False True 1 "},
		} {
			_, boot := at.files(t, plan, counts+c.before+"\n"+itself+"#"+strings.ReplaceAll(text, "\n", "\n#")+"\n")
			out, err := exec.CommandContext(t.Context(), python, "-S", boot).CombinedOutput()
			if line := strings.Count(itself, "\n") + 1; err != nil || string(out) != c.want+strconv.Itoa(line)+"\n" {
				t.Errorf("%s: got %v, %s, want %s%d", name, err, out, c.want, line)
			}
		}
	})
}

// TestForkServersChildEndsWithIt: the child that compiles the text of a fork server does not outlive it, even if
// the code is larger than a pipe.
func TestForkServersChildEndsWithIt(t *testing.T) {
	eachPython(t, func(t *testing.T, python string) {
		plan, at := preloads(t, python, "/nowhere", "")
		itself, _, ok := commented(string(plan.Prestart.Program[0].Data))
		if !ok {
			t.Fatal("the fork server has no comments")
		}
		const ends = "import posix; fork = posix.fork; posix.fork = lambda: (lambda pid: pid and (posix.write(1, b'%d' % pid), posix._exit(0)))(fork())\n"
		_, boot := at.files(t, plan, ends+itself+"#large = '"+strings.Repeat("x", 2<<20)+"'\n")
		cmd := exec.CommandContext(t.Context(), python, "-S", boot)
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput() // the child has the streams, so this waits for its end
		pid, _ := strconv.Atoi(string(out))
		if err != nil || pid == 0 {
			t.Errorf("got %v, %s; want that the child has ended", err, out)
			if p, err := os.FindProcess(pid); err == nil && pid > 0 {
				_ = p.Kill()
			}
		}
	})
}

// TestSessionForkServerSeesTheSets: the fork server of sessions gets the package sets of its sessions.
func TestSessionForkServerSeesTheSets(t *testing.T) {
	for want, sets := range map[string][]string{`prepare"](["/sets/a", "/b\u00e9"])`: {"/sets/a", "/bé"}, `prepare"]([])`: nil} {
		plan, err := kernel.PlanInterpreter(kernel.Program{Language: sandboxmcp.Python, Interpreter: "/usr/bin/python3", Version: "3.12.1", Trusted: true, Sets: sets})
		if err != nil || plan.Prestart == nil {
			t.Fatalf("got %v, %v, want a plan with a fork server", plan, err)
		}
		if text := string(plan.Prestart.Program[0].Data); !strings.Contains(text, want) || strings.Contains(text, "@sets@") {
			_, at, _ := strings.Cut(text, `names["prepare"]`)
			t.Errorf("got %.40s, want %s", at, want)
		}
	}
}

// preloads returns the plan of a program with a package set whose packages are imported ahead.
func preloads(t *testing.T, python, set, code string) (backend.Process, places) {
	t.Helper()
	version := versionOf(t, python)
	if minorOf(version) < 10 {
		t.Skip("it is not forked")
	}
	plan, err := kernel.Plan(kernel.Program{
		Code: code, Display: sandboxmcp.DisplayNone, Interpreter: python, Version: version,
		Trusted: true, Sets: []string{set}, Preload: []string{"os"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan, places{t.TempDir(), t.TempDir()}
}

// files writes the program of a plan and a driver, and returns their paths.
func (at places) files(t *testing.T, plan backend.Process, driver string) (main, boot string) {
	t.Helper()
	main, boot = filepath.Join(at.program, "main.py"), filepath.Join(at.program, ".importlib_bootstrap.py")
	if err := errors.Join(os.WriteFile(main, plan.Program[0].Data, 0o600), os.WriteFile(boot, []byte(driver), 0o600)); err != nil {
		t.Fatal(err)
	}
	return main, boot
}

// loaded returns the output of a program that loads what was imported ahead. Between the two, the environment
// gets LATER and loses EARLIER.
func loaded(t *testing.T, python, set, code string) string {
	t.Helper()
	plan, at := preloads(t, python, set, code)
	const between = "\nimport posix\nposix.environ[b'LATER'] = b'x'; del posix.environ[b'EARLIER'], posix\n"
	driver, waits := string(plan.Program[1].Data), string(plan.Prestart.Program[0].Data)
	_, waits, _ = commented(waits)
	before, _, ok := strings.Cut(waits, "def serve():")
	last := strings.LastIndexByte(strings.TrimSpace(driver), '\n') + 1
	if !ok || !strings.HasSuffix(waits, "\n"+driver[:last]+"begin = "+strings.TrimSuffix(strings.TrimSpace(driver[last:]), "()")+"\n") {
		t.Fatal("the fork server: got it elsewhere, want it between what is preloaded and the driver")
	}
	load := strconv.QuoteToASCII(string(plan.Prestart.Fork.Load) + between)
	main, boot := at.files(t, plan, before+"def wait(path, seen, again, shows, load="+load+"):\n    import sys\n    sys.argv = ['', 'none', path, "+strconv.Quote(set)+"]\n    globals()['again'] = again\n    exec(load, globals())\n"+driver)
	cmd := exec.CommandContext(t.Context(), python, "-S", boot, "none", main)
	cmd.Env = append([]string{"EARLIER=y"}, plan.Prestart.Env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("got %v, %s", err, out)
	}
	return string(out)
}

// TestAttackNoModuleIsTheProgram: a program with the name of a module that the driver imports does not
// run before the driver says that it starts. It could say that it was not compiled.
func TestAttackNoModuleIsTheProgram(t *testing.T) {
	const code = "import posix\nwords = b'{\"type\":\"syntax\"}'\nposix.write(3, len(words).to_bytes(4, 'big') + words)\nposix._exit(0)\n"
	eachPython(t, func(t *testing.T, python string) {
		wrapper := filepath.Join(t.TempDir(), "python") // since Python 3.11 such modules are a part of the interpreter
		if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nexec '"+python+"' -X frozen_modules=off \"$@\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"_sitebuiltins.py", "builtins.py", "encodings.py", "os.py", "site.py", "warnings.py"} {
			p := kernel.Program{Code: code, FileName: name, Interpreter: wrapper, Version: versionOf(t, python), Display: sandboxmcp.DisplayResults}
			if o := run(t, p); !o.Report.Started || o.Report.Syntax != nil {
				t.Errorf("%s: got %+v, want a program that started", name, o)
			}
		}
	})
}
