package runtimes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"
)

// compileTimeout is short, because whoever ends the process waits for it.
const compileTimeout = 2 * time.Second

// compileProbe prints its second argument, compiled as a file that CPython runs
// as it is: 16 bytes of head and the marshalled code.
const compileProbe = `import sys, marshal, json, _frozen_importlib_external as files
code = ""
if sys.implementation.name == "cpython":
    code = (files.MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(sys.argv[2], sys.argv[1], "exec", 0, True))).hex()
print("\x1esandboxmcp " + json.dumps({"code": code}))`

// compiled is a program of ours as one interpreter's own code.
type compiled struct {
	Real   fileID `json:"real"`   // the interpreter
	Source string `json:"source"` // SHA-256 of the name and the text
	Code   []byte `json:"code"`
}

// compiler is the part of a Set that makes compiled code.
type compiler struct {
	mu   sync.Mutex
	busy map[string]bool // by path; an interpreter that failed stays
}

// Source is a Python program of ours.
type Source struct {
	name, text, sum string
}

// NewSource makes a Source. name is what tracebacks call the program's file.
func NewSource(name string, text []byte) Source {
	sum := sha256.Sum256(slices.Concat([]byte(name), []byte{0}, text))
	return Source{name, string(text), hex.EncodeToString(sum[:])}
}

// Compiled returns a program as the compiled code of the interpreter at path, a file
// that starts sooner than its text; nil when there is none. When prepare is not nil it can be made,
// for later calls: whoever gets prepare has to call it, and it starts a process.
func (s *Set) Compiled(path string, src Source) (code []byte, prepare func(context.Context)) {
	real, ok := statID(path)
	if !ok {
		return nil, nil
	}
	if c, ok := s.cache.compiled(path); ok && c.Real == real && c.Source == src.sum {
		return c.Code, nil
	}
	s.compiler.mu.Lock()
	defer s.compiler.mu.Unlock()
	if s.compiler.busy[path] {
		return nil, nil
	}
	s.compiler.busy[path] = true
	return nil, func(ctx context.Context) {
		code, err := s.compile(ctx, path, src)
		if err != nil {
			s.cfg.Logger.Debug("driver not compiled", "path", path, "error", err)
			return
		}
		s.cache.keepCompiled(path, compiled{Real: real, Source: src.sum, Code: code})
		s.compiler.mu.Lock()
		delete(s.compiler.busy, path)
		s.compiler.mu.Unlock()
	}
}

func (s *Set) compile(ctx context.Context, path string, src Source) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	a, err := s.probe(ctx, path, "-I", "-S", "-c", compileProbe, src.name, src.text)
	if err != nil {
		return nil, err
	}
	code, err := hex.DecodeString(a.Code)
	if err != nil || len(code) <= 16 || bytes.Equal(code[:4], make([]byte, 4)) {
		return nil, errors.New("it makes no compiled code")
	}
	return code, nil
}
