package kernel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

func bash(t *testing.T) kernel.Program {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	return kernel.Program{Language: sandboxmcp.Shell, Interpreter: path}
}

func TestShellCells(t *testing.T) {
	p := bash(t)
	const strict = "set -euo pipefail"
	at := "/run/program/main.sh: "
	for name, row := range map[string]cellRow{
		"state":             {cells: []string{"mkdir -p sub; cd sub; V=41; f() { echo $((V + 1)); }", "f; basename \"$PWD\""}, stdout: "42\nsub\n"},
		"declared":          {cells: []string{"declare -A m=([a]=1); declare -i n=2; typeset x=3", "n+=1; echo ${m[a]} $n $x"}, stdout: "1 3 3\n"},
		"alias":             {cells: []string{"shopt -s expand_aliases; alias ll='echo aliased'", "ll"}, stdout: "aliased\n"},
		"options":           {cells: []string{"set -f; shopt -s extglob nocasematch", "echo *; [[ a == A ]] && echo same"}, stdout: "*\nsame\n"},
		"arguments":         {cells: []string{"echo $#; set -- a b", "echo $# $2 $0"}, stdout: "2 b /run/program/main.sh\n"},
		"descriptors":       {cells: []string{"exec 7>seven; echo one >&7", "echo two >&7; cat seven"}, stdout: "one\ntwo\n"},
		"status":            {cells: []string{"true; (exit 7)"}, exit: 7},
		"empty":             {cells: []string{""}},
		"comment":           {cells: []string{"false # no", "# yes"}},
		"here document":     {cells: []string{"cat <<X\na\nX"}, stdout: "a\n"},
		"not found":         {cells: []string{"\nnosuch"}, exit: 127, stderr: at + "line 2: nosuch: command not found\n"},
		"line of function":  {cells: []string{"f() {\n\n nosuch\n}\nf"}, exit: 127, stderr: at + "line 3: nosuch: command not found\n"},
		"syntax":            {cells: []string{"echo a\nif then\necho b"}, stdout: "a\n", exit: 2, stderr: at + "eval: line 2: syntax error near unexpected token `then'\n"},
		"after syntax":      {cells: []string{"x=1", "if", "echo $x"}, stdout: "1\n"},
		"exit":              {cells: []string{"echo a; exit 3; echo b"}, stdout: "a\n", exit: 3},
		"exit of last":      {cells: []string{"false; exit"}, exit: 1},
		"exit at once":      {cells: []string{"exit"}},
		"exit large":        {cells: []string{"exit 300"}, exit: 44},
		"exit words":        {cells: []string{"exit abc; echo no"}, exit: 2, stderr: "abc: numeric argument required\n"},
		"exit in depth":     {cells: []string{"f() { while :; do for i in 1 2; do { exit 4; echo no; } >/dev/null; done; done; }; f; echo no", "echo on $-"}, stdout: "on hBE\n"},
		"exit in eval":      {cells: []string{"eval 'exit 5; echo no'\necho no"}, exit: 5},
		"exit in file":      {cells: []string{"echo 'exit 6\necho no' > f.sh", ". ./f.sh\necho no"}, exit: 6},
		"exit in condition": {cells: []string{"if exit 7; then echo no; fi; exit 8 || echo no"}, exit: 7},
		"exit of subshell":  {cells: []string{"(exit 3); echo $?; x=$(exit 4); echo $?; exit 5 | cat; echo ${PIPESTATUS[0]}"}, stdout: "3\n4\n5\n"},
		"after exit":        {cells: []string{"x=1; f() { x=2; exit 1; }; f", "echo $x"}, stdout: "2\n"},
		"return":            {cells: []string{"return 6; echo no"}, exit: 6},
		"strict":            {cells: []string{strict + "; echo a; false; echo no"}, stdout: "a\n", exit: 1},
		"strict stays":      {cells: []string{"x=1; " + strict, "false; echo no", "echo $x; f() { (exit 9); echo no; }\nf\necho no"}, stdout: "1\n", exit: 9},
		"strict conditions": {cells: []string{strict, "if false; then :; fi; false || ! true || echo ok; f() { false; echo in; }; f && echo on"}, stdout: "ok\nin\non\n"},
		"strict subshell":   {cells: []string{strict + "; (false; echo no); echo no"}, exit: 1},
		"strict given up":   {cells: []string{strict, "set +e; false; echo on"}, stdout: "on\n"},
		"strict pipe":       {cells: []string{strict, "false | cat; echo no"}, exit: 1},
		"not set":           {cells: []string{"x=1; f() { echo f$x; }; cd /tmp; set -u; echo $nope; echo no"}, exit: 1, stderr: at + "line 1: nope: unbound variable\n"},
		"after not set":     {cells: []string{"x=1; f() { echo f$x; }; cd /tmp; set -u; echo $nope", "f; echo $PWD", "exit 3", "f"}, stdout: "f1\n"},
		"after real exit":   {cells: []string{"x=1", "{ x=2; builtin exit 9; } >/dev/null", "echo $x"}, stdout: "2\n"},
		"real exits":        {cells: []string{"builtin exit 1", "builtin exit 2", "builtin exit 3"}, exit: 3},
		"arithmetic":        {cells: []string{"echo $((1/0)); echo no\necho yes"}, stdout: "yes\n", stderr: "division by 0"},
		"read only":         {cells: []string{"readonly R=1", "R=2", "echo $R"}, stdout: "1\n"},
		"traced":            {cells: []string{"set -x", "true; set +x", "echo a"}, stdout: "a\n"},
		"own traps":         {cells: []string{"trap 'echo err' ERR; false; true", "false; true"}},
		"reads nothing":     {cells: []string{"cat; read x; echo \"[$x]\""}, stdout: "[]\n"},
		"words of its own":  {cells: []string{"IFS=,; set -a; printf() { echo no; }; read() { echo no; }; local() { :; }; trap() { :; }", "builtin printf 'a%s\\n' b"}, stdout: "ab\n"},
		"background":        {cells: []string{"(until [ -e go ]; do sleep 0.01; done; echo x > bg) &", "touch go; wait; cat bg"}, stdout: "x\n"},
		"no channel":        {cells: []string{"sh -c 'for i in 3 10 11 12; do if true 2>/dev/null >&$i; then echo open $i; fi; done'; bash -c '{ : >&3; } 2>/dev/null || echo closed'"}, stdout: "closed\n", stderr: "*"},
		"bytes":             {cells: []string{"printf '%s|' 'a\\nb' \"ü\" $'c\\td' '%s' \"\\\\\""}, stdout: "a\\nb|ü|c\td|%s|\\|"},
		"nul":               {cells: []string{"echo a\x00b"}, stdout: "ab\n"},
		"large":             {cells: []string{"x=" + strings.Repeat("y", 100000) + "; echo ${#x}"}, stdout: "100000\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if row.stderr == "*" {
				row.cells[0], row.stderr = "{ "+row.cells[0]+"; } 2>/dev/null", ""
			}
			checkCells(t, p, row)
		})
	}
}

func TestShellInterrupt(t *testing.T) {
	p := bash(t)
	// A program is there to be interrupted when it says so itself.
	begins := strings.NewReplacer("sleep 60", `sh -c ': > begun; exec sleep 60'`, "while :; do :;", ": > begun; while :; do :;", "while :; do sleep", ": > begun; while :; do sleep", "wait $!", ": > begun; wait $!")
	for _, code := range []string{
		"sleep 60; echo no",
		"while :; do :; done",
		"while :; do sleep 1; done",
		"f() { sleep 60; echo no; }; f; echo no",
		"x=$(sleep 60); echo no",
		"sleep 60 | cat; echo no",
		"(while :; do :; done); echo no",
		"read x < <(sleep 60); echo no",
		"wait $!",
		"set -e; sleep 60",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			l := begin(t, p)
			if s := l.do(t, kernel.Cell{Code: "kept=7; (until [ -e go ]; do sleep 0.01; done; echo bg > bg) &"}); s.Err != nil {
				t.Fatal(s.Err)
			}
			if s := l.whenBegun(t, begins.Replace(code), func() { l.interrupt(t) }); s.Err != nil || s.Exit != 130 || s.Stdout != "" {
				t.Fatalf("an interrupted cell: got %+v, want 130", s)
			}
			for range 3 {
				l.interrupt(t) // between two it does nothing
			}
			l.do(t, kernel.Cell{Code: "sleep 0.3"}) // what came late is for this one
			if s := l.do(t, kernel.Cell{Code: "echo $kept; touch go; wait; cat bg"}); s.Err != nil || s.Stdout != "7\nbg\n" || s.Stderr != "" {
				t.Errorf("the next cell: got %+v, want its variables and its jobs", s)
			}
		})
	}
}

// A program of the background that takes an interrupt for itself, as Node.js does
// at its start, outlives the interrupts of later cells, and so does what it starts
// by then; what the later cell started does not.
func TestShellProgramsThatUndoItOutliveInterrupts(t *testing.T) {
	p := bash(t)
	taker := `python3 -c "import signal, time, os, subprocess
signal.signal(signal.SIGINT, signal.SIG_DFL)
open('up-$NAME', 'w').close()
while not os.path.exists('go'): time.sleep(.01)
open('late-$NAME', 'w').write(subprocess.run(['echo', 'lives'], capture_output=True, text=True).stdout)"`
	up := " until [ -e up-$NAME ]; do sleep 0.01; done"
	for name, first := range map[string]string{
		"child":     taker + " &" + up,
		"orphan":    "(" + taker + " &);" + up,
		"of a job":  "{ " + taker + "; } &" + up,
		"exits":     taker + " &" + up + "; exit 3",
		"again":     taker + " &" + up + "; builtin exit 3",
		"no globs":  "set -f; " + taker + " &" + up,
		"odd glob":  "shopt -s nullglob failglob; " + taker + " &" + up,
		"many":      "for i in {1..50}; do sleep 60 & done; " + taker + " &" + up,
		"other IFS": "IFS=/12; " + taker + " &" + up,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := begin(t, p)
			if s := l.do(t, kernel.Cell{Code: "NAME=a; export NAME; " + first}); s.Err != nil || strings.Contains(s.Stderr, "syntax") {
				t.Fatalf("the first cell: got %+v, want no error", s)
			}
			for range 2 {
				if s := l.whenBegun(t, `sh -c ': > begun; exec sleep 60'; echo no`, func() { l.interrupt(t) }); s.Err != nil || s.Exit != 130 || s.Stdout != "" {
					t.Fatalf("an interrupted cell: got %+v, want 130", s)
				}
				l.do(t, kernel.Cell{Code: "rm -f begun; sleep 0.3"}) // what came late is for this one
			}
			if s := l.do(t, kernel.Cell{Code: "touch go; for i in {1..500}; do [ -s late-a ] && break; sleep 0.01; done; cat late-a; unset IFS; kill $(jobs -p) 2>/dev/null; true"}); s.Stdout != "lives\n" {
				t.Errorf("the job of the first cell: got %+v, want its output", s)
			}
			// And one that the interrupted cell itself started is interrupted.
			again := strings.ReplaceAll(taker+" & until [ -e up-b ]; do sleep 0.01; done; rm go; ", "$NAME", "b") + `sh -c ': > begun; exec sleep 60'`
			if s := l.whenBegun(t, "rm -f go; "+again, func() { l.interrupt(t) }); s.Err != nil || s.Exit != 130 {
				t.Fatalf("an interrupted cell: got %+v, want 130", s)
			}
			if s := l.do(t, kernel.Cell{Code: "wait $! 2>/dev/null; echo $?"}); name != "again" && s.Stdout != "130\n" {
				t.Errorf("the job of the interrupted cell: got %+v, want 130", s)
			}
		})
	}
}

// Jobs of the background live through an interrupt of the next cell, those too
// that had no time to begin before it.
func TestShellJobsOutliveInterrupts(t *testing.T) {
	l := begin(t, bash(t))
	for range 3 {
		if s := l.do(t, kernel.Cell{Code: "for i in {1..200}; do sleep 60 & done"}); s.Err != nil {
			t.Fatal(s.Err)
		}
		again := time.NewTicker(20 * time.Millisecond)
		done := make(chan said)
		go func() { done <- l.do(t, kernel.Cell{Code: "while :; do :; done"}) }()
		for over := false; !over; {
			select {
			case <-again.C:
				l.interrupt(t)
			case s := <-done:
				over = true
				if s.Err != nil || s.Exit != 130 {
					t.Errorf("an interrupted cell: got %+v, want 130", s)
				}
			}
		}
		again.Stop()
		l.do(t, kernel.Cell{Code: "sleep 0.3"}) // what came late is for this one
		if s := l.do(t, kernel.Cell{Code: "jobs -r | wc -l; kill -9 $(jobs -p); wait 2>/dev/null"}); s.Stdout != "200\n" {
			t.Errorf("jobs: got %q, want 200", s.Stdout)
		}
	}
}

func TestShellInputAndEnvironment(t *testing.T) {
	p := bash(t)
	l := begin(t, p)
	for _, c := range []struct {
		cell kernel.Cell
		want string
	}{
		{kernel.Cell{Code: "x=own; read a; od -An -c", Stdin: []byte("first\na\x00\\n\xff\n")}, "   a  \\0   \\   n 377  \\n\n"},
		{kernel.Cell{Code: "echo $a; cat"}, "first\n"},
		{kernel.Cell{Code: "echo \"$Q|$x|$USER|$E|${value}\"; env | grep -c '^x='; Q=other", Env: map[string]string{"Q": "a b\n\\n", "x": "1", "USER": "me", "E": "", "value": "v"}}, "a b\n\\n|1|me||v\n1\n"},
		{kernel.Cell{Code: "echo \"${Q-none}|$x|$USER|${E-none}|${value-none}\"; env | grep -c '^x=' || :"}, "none|own|sandbox|none|none\n0\n"},
	} {
		if s := l.do(t, c.cell); s.Err != nil || s.Stdout != c.want || s.Exit != 0 {
			t.Errorf("%s: %+v, want %q", c.cell.Code, s, c.want)
		}
	}
}

// A shell that kills itself is gone, and its process ends with it.
func TestShellGone(t *testing.T) {
	p := bash(t)
	for code, want := range map[string]int{"kill -9 $$": 137, "exec sh -c 'exit 5'": 5, "trap - EXIT; builtin exit 6": 6} {
		l := begin(t, p)
		if s := l.do(t, kernel.Cell{Code: code}); s.Err == nil {
			t.Errorf("%s: got %+v, want an error", code, s)
		}
		_ = l.cmd.Wait()
		if got := l.cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit %d, want %d", code, got, want)
		}
	}
}

// TestShCells: without bash each cell has a shell of its own.
func TestShCells(t *testing.T) {
	if _, err := os.Stat("/bin/dash"); err != nil {
		t.Skip("no sh here that is no bash")
	}
	l := begin(t, kernel.Program{Language: sandboxmcp.Shell, Interpreter: "/bin/dash"})
	for _, c := range []struct {
		cell         kernel.Cell
		want, stderr string
		exit         int
	}{
		{kernel.Cell{Code: "x=1; echo a > f; echo $#"}, "0\n", "", 0},
		{kernel.Cell{Code: "echo \"[$x]\"; cat f; exit 3"}, "[]\na\n", "", 3},
		{kernel.Cell{Code: "set -e\nfalse\necho no"}, "", "", 1},
		{kernel.Cell{Code: "echo a\nif then"}, "a\n", "2: eval: Syntax error", 2},
		{kernel.Cell{Code: "cat; printf '%s' \"$Q\"", Stdin: []byte("i\x00n"), Env: map[string]string{"Q": "a b\n\\n\n"}}, "i\x00na b\n\\n\n", "", 0},
		{kernel.Cell{Code: "cat; echo $Q"}, "\n", "", 0},
		{kernel.Cell{Code: "echo a", Interrupted: true}, "a\n", "", 0},
	} {
		if s := l.do(t, c.cell); s.Err != nil || s.Stdout != c.want || s.Exit != c.exit || !strings.Contains(s.Stderr, c.stderr) || c.stderr == "" && s.Stderr != "" {
			t.Errorf("%s: %+v, want %q", c.cell.Code, s, c.want)
		}
	}
	s := l.whenBegun(t, ": > begun; while :; do :; done", func() {
		l.interrupt(t)
		again := time.AfterFunc(300*time.Millisecond, func() { l.interrupt(t) }) // as the engine does: the first may come while a shell is started
		t.Cleanup(func() { again.Stop() })
	})
	if s.Err != nil || s.Exit == 0 {
		t.Errorf("an interrupted cell: got %+v, want a failure", s)
	}
	l.interrupt(t)
	if s = l.do(t, kernel.Cell{Code: "echo on"}); s.Stdout != "on\n" {
		t.Errorf("after an interrupt: got %+v, want on", s)
	}
	if _, err := os.Stat(filepath.Join(l.at.work, "f")); err != nil {
		t.Error(err)
	}
}

// A signal that the first process of a shell has got, and sends on late, does not interrupt the next cell.
func TestShellIsNotInterruptedByAnEarlierSignal(t *testing.T) {
	l := begin(t, bash(t))
	l.do(t, kernel.Cell{Code: ":"})
	for range 3 {
		_ = l.cmd.Process.Signal(syscall.SIGSTOP)
		_ = l.cmd.Process.Signal(syscall.SIGINT)
		done := make(chan said)
		go func() { done <- l.do(t, kernel.Cell{Code: "sleep 0.2; echo ran", Interrupted: true}) }()
		time.Sleep(50 * time.Millisecond) // until the shell has the cell; if that takes longer, the test shows nothing
		_ = l.cmd.Process.Signal(syscall.SIGCONT)
		if s := <-done; s.Err != nil || s.Exit != 0 || s.Stdout != "ran\n" {
			t.Errorf("got %v, exit %d, %q %q; want a cell that ran", s.Err, s.Exit, s.Stdout, s.Stderr)
		}
	}
}
