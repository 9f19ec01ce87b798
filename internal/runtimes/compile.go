package runtimes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"
)

// compileTimeout is short, because a server that shuts down waits for the compilation.
const compileTimeout = 2 * time.Second

// compileProbe prints its second argument, compiled to the format of a .pyc file: 16 bytes
// of header and the marshalled code. Python looks for a ZIP archive in each file that it runs. Without
// the record at the end, whose directory is larger than the file, it would read the file once more.
const compileProbe = `import sys, marshal, json, _frozen_importlib_external as files
code = ""
if sys.implementation.name == "cpython":
    code = (files.MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(sys.argv[2], sys.argv[1], "exec", 0, True)) + b"PK\5\6" + bytes(8) + b"\xff" * 8 + bytes(2)).hex()
print("\x1esandboxmcp " + json.dumps({"code": code}))`

// pycHeader is the size of what comes before the code in a .pyc file.
const pycHeader = 16

// compiler tracks which interpreters compile a Source.
type compiler struct {
	mu   sync.Mutex
	busy map[string]bool // by path and name; an interpreter that failed stays, so that it is not tried again
}

// Source is a Python program of this product, such as a driver.
type Source struct {
	name string
	text []byte
	sum  string // SHA-256 of the name and the text
}

// NewSource makes a Source. name is the file name that tracebacks show. The caller must not change
// text.
func NewSource(name string, text []byte) Source {
	h := sha256.New()
	_, _ = h.Write([]byte(name))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(text)
	return Source{name, text, hex.EncodeToString(h.Sum(nil))}
}

// Compiled returns src as compiled by the interpreter at path. Python starts a compiled
// file faster than its text. If no compiled code is cached, code is nil, as it is with Config.Root.
//
// If prepare is not nil, it compiles src for later calls. The caller that receives prepare
// must call it, because no other caller gets one for this path and name. prepare starts a process.
func (s *Set) Compiled(path string, src Source) (code []byte, prepare func(context.Context)) {
	if s.cfg.Root != "" { // the interpreter does not run on this machine
		return nil, nil
	}
	real, ok := statID(path)
	if !ok {
		return nil, nil
	}
	key := path + " " + src.name
	id := compiled{path, real, src.sum}
	if code = s.codes.get(id); code != nil {
		return code, nil
	}
	s.compiler.mu.Lock()
	defer s.compiler.mu.Unlock()
	if s.compiler.busy[key] {
		return nil, nil
	}
	s.compiler.busy[key] = true
	return nil, func(ctx context.Context) {
		code, err := s.compile(ctx, path, src)
		if err != nil {
			s.cfg.Logger.Debug("driver not compiled", "path", path, "error", err)
			return
		}
		if err := s.codes.put(id, code); err != nil {
			s.cfg.Logger.Warn("compiled driver not kept", "error", err)
		}
		s.compiler.mu.Lock()
		delete(s.compiler.busy, key)
		s.compiler.mu.Unlock()
	}
}

func (s *Set) compile(ctx context.Context, path string, src Source) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	a, err := s.probe(ctx, path, "-I", "-S", "-c", compileProbe, src.name, string(src.text))
	if err != nil {
		return nil, err
	}
	code, err := hex.DecodeString(a.Code)
	if err != nil || len(code) <= pycHeader || bytes.Equal(code[:4], make([]byte, 4)) {
		return nil, errors.New("it makes no compiled code")
	}
	return code, nil
}
