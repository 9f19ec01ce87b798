package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// outDir is a directory for copies of artifacts. Nothing is written outside of it, whatever
// the names of the artifacts are.
type outDir struct {
	path string
	root *os.Root
}

// openOut opens the directory of --out, and creates it if it is missing. It returns nil
// for an empty name.
func openOut(dir string) (*outDir, error) {
	if dir == "" {
		return nil, nil
	}
	err := os.MkdirAll(dir, 0o777) //nolint:gosec // the user's umask applies
	if err == nil {
		var root *os.Root
		if root, err = os.OpenRoot(dir); err == nil {
			return &outDir{dir, root}, nil
		}
	}
	return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "--out %s cannot be written to", sandboxmcp.Quote(dir)).
		WithHint("name a directory that you can write to").WithCause(err)
}

func (d *outDir) close() {
	if d != nil {
		_ = d.root.Close()
	}
}

// write replaces a file atomically. A link of that name is replaced, not its target.
func (d *outDir) write(name string, data []byte) error {
	if !fs.ValidPath(name) || name == "." {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "artifact %s is not written: its name leads out of the directory", sandboxmcp.Quote(name))
	}
	if err := d.put(name, data); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "artifact %s cannot be written into %s", sandboxmcp.Quote(name), sandboxmcp.Quote(d.path)).
			WithHint("check free space and permissions there, or remove what has that name").WithCause(err)
	}
	return nil
}

func (d *outDir) put(name string, data []byte) (err error) {
	if dir := path.Dir(name); dir != "." {
		if err = d.root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	tmp := path.Join(path.Dir(name), ".sandboxmcp-"+rand.Text())
	f, err := d.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = d.root.Remove(tmp)
		}
	}()
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return d.root.Rename(tmp, name)
}

// copyOut writes the artifacts of a result and prints which files of the program were not
// stored. If one cannot be written, it prints the reason and continues. It reports whether
// all were written.
func (a *call) copyOut(ctx context.Context, e app.Engine, dir *outDir, res sandboxmcp.Result) bool {
	whole := true
	for _, f := range res.Artifacts {
		err := copyOne(ctx, e, dir, res, f)
		if err != nil {
			whole = false
			a.failure(sandboxmcp.AsError(err))
		}
	}
	for _, s := range skippedFiles(res) {
		a.Say("file " + sandboxmcp.Quote(s.Name) + " was not kept: " + s.Reason)
	}
	return whole
}

// sayKept tells a person at a terminal which files of a run were kept, and how to get them.
func (a *call) sayKept(res sandboxmcp.Result, copied bool) {
	if !a.Watched || copied || len(res.Artifacts) == 0 {
		return
	}
	const most = 5
	names := make([]string, 0, most)
	for _, f := range res.Artifacts[:min(len(res.Artifacts), most)] {
		names = append(names, f.Name)
	}
	text := "kept " + strings.Join(names, ", ")
	if more := len(res.Artifacts) - len(names); more > 0 {
		text += " and " + counted(int64(more), "more file")
	}
	a.Say(text + "; get them with `sandboxmcp artifacts " + string(res.RequestID) + " --out DIR`")
}

// skippedFiles returns the files of a result that were not stored. Their type in metadata
// is the engine's, or any JSON type if the result was decoded. They are therefore converted
// through JSON.
func skippedFiles(res sandboxmcp.Result) []sandboxmcp.SkippedFile {
	text, err := json.Marshal(res.Metadata["skipped"])
	if err != nil {
		return nil
	}
	var files []sandboxmcp.SkippedFile
	if json.Unmarshal(text, &files) != nil {
		return nil
	}
	return files
}

func copyOne(ctx context.Context, e app.Engine, dir *outDir, res sandboxmcp.Result, f sandboxmcp.Artifact) error {
	data := f.ContentB64
	if len(data) == 0 && f.SizeBytes > 0 && e != nil {
		kept, err := e.ArtifactContent(ctx, sandboxmcp.Caller{Namespace: res.Namespace}, res.RequestID, f.Name)
		if err != nil {
			return fmt.Errorf("fetch artifact %s: %w", sandboxmcp.Quote(f.Name), err)
		}
		data = kept.ContentB64
	}
	return dir.write(f.Name, data)
}
