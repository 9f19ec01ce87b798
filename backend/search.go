package backend

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// An Opener is the part of a Backend that opens sandboxes.
type Opener interface {
	Open(ctx context.Context, spec Spec) (Sandbox, error)
}

// searchScript prints a line for each interpreter: language, path, version. Names are tried in this
// order in each directory.
const searchScript = `
find() {
	for d in /usr/local/bin /usr/bin /bin; do
		for n in "$@"; do [ -x "$d/$n" ] && { echo "$d/$n"; return; }; done
	done
}
p=$(find python3 python); [ -n "$p" ] && echo python $("$p" -I -S -c 'import os,sys,platform; print(os.path.realpath(sys.executable), platform.python_version())' 2>/dev/null)
p=$(find node nodejs); [ -n "$p" ] && echo node $("$p" -p 'process.execPath + " " + process.versions.node' 2>/dev/null)
p=$(find bash); if [ -n "$p" ]; then echo shell "$p" $("$p" -c 'echo ${BASH_VERSION%%(*}'); else p=$(find sh dash ash); [ -n "$p" ] && echo shell "$p"; fi
echo done
`

// searchLimit bounds the search.
const searchLimit = 20 * time.Second

// errNoShell means that the search did not run to its end.
var errNoShell = errors.New("the image has no shell at /bin/sh")

// FindInterpreters looks for interpreters in a sandbox of an image; empty: the backend's own. Of each
// language that it finds it returns path and version.
func FindInterpreters(ctx context.Context, b Opener, image string) (map[sandboxmcp.Language]Interpreter, error) {
	sb, err := b.Open(ctx, Spec{ID: "interpreters", Image: image, MemoryBytes: 256 << 20, CPUCores: 1, MaxTasks: 64, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 16 << 20, Apart: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = sb.Close(context.WithoutCancel(ctx)) }()
	ctx, cancel := context.WithTimeout(ctx, searchLimit)
	defer cancel()
	var out Beginning
	r, err := sb.Start(ctx, Process{Argv: []string{"/bin/sh", "-c", searchScript}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Stdout: &out})
	var end Exit
	if err == nil {
		end, err = r.Wait(ctx)
	}
	if err == nil {
		err = r.Drain(ctx)
	}
	if err == nil && end.Lost {
		err = sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox ended while interpreters were looked for in it").WithHint("ask again")
	}
	if err == nil && !strings.HasSuffix(out.String(), "done\n") {
		err = errNoShell
	}
	if err != nil {
		return nil, err
	}
	return parseFound(out.String(), image), nil
}

// parseFound reads what searchScript has printed. The image is the operator's, but a program of it may
// print anything: a path has to be absolute.
func parseFound(out, image string) map[sandboxmcp.Language]Interpreter {
	found := map[sandboxmcp.Language]Interpreter{}
	for line := range strings.Lines(out) {
		f := append(strings.Fields(line), "", "")
		if strings.HasPrefix(f[1], "/") {
			l := sandboxmcp.Language(f[0])
			found[l] = Interpreter{Language: l, Path: f[1], Version: f[2], Image: image}
		}
	}
	return found
}
