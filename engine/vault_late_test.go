package engine_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// Programs may have had a new secret before a call reads the files of their session: lists wait for each other, and
// large copies for room. What the call returns is masked with that secret, too.
func TestSecretsThatCameBeforeFilesWereRead(t *testing.T) {
	for what, read := range map[string]func(e *engine.Engine, id sandboxmcp.SessionID) (any, error){
		"SessionFiles": func(e *engine.Engine, id sandboxmcp.SessionID) (any, error) {
			return e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id)
		},
		"SessionEntries": func(e *engine.Engine, id sandboxmcp.SessionID) (any, error) {
			return e.SessionEntries(t.Context(), sandboxmcp.Caller{}, id, true)
		},
		"Bridge": func(e *engine.Engine, id sandboxmcp.SessionID) (any, error) {
			return e.Bridge(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Bridge{From: id})
		},
		"ReadFile": func(e *engine.Engine, id sandboxmcp.SessionID) (any, error) {
			_, data, err := e.ReadFile(t.Context(), sandboxmcp.Caller{}, id, "holds", 100)
			return string(data), err
		},
		"OpenFile": func(e *engine.Engine, id sandboxmcp.SessionID) (any, error) {
			_, f, err := e.OpenFile(t.Context(), sandboxmcp.Caller{}, id, "holds", 100)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			data, err := io.ReadAll(f)
			return string(data), err
		},
	} {
		t.Run(what, func(t *testing.T) {
			come := func() {}
			f := &fake{files: map[string]string{}, onFiles: func(x backend.Files) backend.Files { return lateFiles{x, func() { come() }} }}
			e := open(t, f)
			id := create(t, e, sandboxmcp.SessionSpec{})
			come = sync.OnceFunc(func() {
				addSecret(t, e, "TOKEN", secret)
				f.files["of "+secret], f.files["holds"], f.files[".bridge/k.json"] = "fine", secret, `"`+secret+`"`
			})
			got, err := read(e, id)
			if want := what == "ReadFile" || what == "OpenFile"; want != (sandboxmcp.CodeOf(err) == sandboxmcp.CodeAccessDenied) || !want && err != nil {
				t.Errorf("got %v, want a refusal: %v", err, want)
			}
			if text, _ := json.Marshal(got); strings.Contains(string(text), secret) || err == nil && !strings.Contains(string(text), mask) {
				t.Errorf("got %s, want the secret masked", text)
			}
		})
	}
}

// lateFiles calls come before something is read.
type lateFiles struct {
	backend.Files

	come func()
}

func (f lateFiles) List(ctx context.Context, name string, limit int) ([]backend.FileInfo, bool, error) {
	f.come()
	return f.Files.List(ctx, name, limit)
}

func (f lateFiles) Open(ctx context.Context, name string) (backend.File, error) {
	f.come()
	return f.Files.Open(ctx, name)
}
