package docker

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// interpreters are those of the images, which do not change while a backend lives. The first call
// looks for them in a sandbox of each image.
type interpreters struct {
	mu     sync.Mutex
	rows   []sandboxmcp.Runtime
	images images // that have them
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

func (i *interpreters) in(ctx context.Context, b opener, e *Engine) ([]sandboxmcp.Runtime, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rows == nil {
		_, has, err := e.connect(ctx)
		if err != nil {
			return nil, err
		}
		out := map[string]string{} // of the search, by image
		for _, name := range has.names() {
			if out[name], err = look(ctx, b, e, name); err != nil {
				return nil, err
			}
		}
		i.images, i.rows = has, has.runtimes(out)
	}
	return append([]sandboxmcp.Runtime{}, i.rows...), nil
}

// opener opens sandboxes of the image.
type opener interface {
	Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error)
}

// interpreter returns one of them.
func (i *interpreters) interpreter(ctx context.Context, b opener, e *Engine, l sandboxmcp.Language) (backend.Interpreter, error) {
	if !slices.Contains(sandboxmcp.Languages(), l) {
		return backend.Interpreter{}, sandboxmcp.Errorf(sandboxmcp.CodeUnsupportedLanguage, "language %s is not supported", sandboxmcp.Quote(string(l)))
	}
	rows, err := i.in(ctx, b, e)
	if err != nil {
		return backend.Interpreter{}, err
	}
	i.mu.Lock()
	has := i.images
	i.mu.Unlock()
	for _, r := range rows {
		if r.Language == l && r.Available {
			name, _ := has.named(l)
			return backend.Interpreter{Language: l, Path: r.Path, Version: r.Version, Image: name}, nil
		}
	}
	return backend.Interpreter{}, sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "the image %s has no interpreter for %s", strings.Join(has.names(), ", "), l).
		WithHint("set image to one that has it, or run `sandboxmcp image build`")
}

// look runs the search in a sandbox of an image.
func look(ctx context.Context, b opener, e *Engine, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, searchLimit)
	defer cancel()
	sb, err := b.Open(ctx, backend.Spec{ID: "interpreters", Image: name, MemoryBytes: 256 << 20, CPUCores: 1, MaxTasks: 64, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 16 << 20, Apart: true})
	if err != nil {
		return "", err
	}
	defer func() { _ = sb.Close(context.WithoutCancel(ctx)) }()
	var out strings.Builder
	r, err := sb.Start(ctx, backend.Process{Argv: []string{"/bin/sh", "-c", searchScript}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Stdout: &out})
	if err == nil {
		_, err = r.Wait(ctx)
	}
	if err == nil {
		err = r.Drain(ctx)
	}
	if err == nil && !strings.HasSuffix(out.String(), "done\n") {
		return "", e.failure("look for interpreters", nil).WithHint("the image needs a shell at /bin/sh")
	}
	if err != nil {
		return "", e.failure("look for interpreters", err).WithHint("the image needs a shell at /bin/sh")
	}
	return out.String(), nil
}

// runtimes returns a row for each language, from what searchScript has printed in each image.
func (i images) runtimes(out map[string]string) []sandboxmcp.Runtime {
	rows := []sandboxmcp.Runtime{}
	for _, l := range sandboxmcp.Languages() {
		row := sandboxmcp.Runtime{Language: l, Backend: Name, PackagesPreloaded: []string{}}
		name, ok := i.named(l)
		if name == "" {
			name = i.name
		}
		if f := parse(out[name])[l]; ok && f != nil {
			row.Available, row.Path, row.Version = true, f[0], f[1]
		} else {
			row.Hint = "use an image that has it, such as the one of `sandboxmcp image build`"
		}
		rows = append(rows, row)
	}
	return rows
}

// parse reads what searchScript has printed: path and version of the interpreter of each language.
// The image is the operator's, but a program of it may print anything: a path has to be absolute.
func parse(out string) map[sandboxmcp.Language][]string {
	found := map[sandboxmcp.Language][]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) >= 2 && strings.HasPrefix(f[1], "/") {
			found[sandboxmcp.Language(f[0])] = append(f[1:], "")
		}
	}
	return found
}
