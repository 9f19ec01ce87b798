package process_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// staticProgram prints what is at the address of its argument. It has no
// libraries, and so finds names by its own means.
const staticProgram = `package main

import (
	"io"
	"net"
	"os"
	"strings"
)

func main() {
	host := strings.Trim(strings.TrimPrefix(os.Args[1], "http://"), "/")
	c, err := net.Dial("tcp", host+":80")
	if err == nil {
		_, err = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	}
	var b []byte
	if err == nil {
		b, err = io.ReadAll(c)
	}
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	_, text, _ := strings.Cut(string(b), "\r\n\r\n")
	os.Stdout.WriteString(text)
}
`

// static builds it, where there is a compiler.
var static = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "static")
	if err != nil {
		return nil
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "static")
	if os.WriteFile(source, []byte(staticProgram), 0o600) != nil {
		return nil
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-ldflags=-s -w", "-o", program, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if cmd.Run() != nil {
		return nil
	}
	b, _ := os.ReadFile(program)
	return b
})
