package testkit

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// S3Env names the program of an S3 server, versitygw, for tests. scripts/versitygw.sh builds it.
const S3Env = "SANDBOXMCP_TEST_S3"

// S3 starts an S3 server on a directory of the test, and returns the setting blob_url of a bucket there. The server's keys
// are in the environment until the test ends.
func S3(t testing.TB) (bucket, dir string) {
	t.Helper()
	program := os.Getenv(S3Env)
	Need(t, "s3", program != "", S3Env+" names no S3 server")
	dir = t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bucket"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c := exec.CommandContext(ctx, program, "--port", address, "--access", "key", "--secret", "secret-of-the-test", "posix", dir)
	var log bytes.Buffer
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = c.Wait() // it was killed
	})
	answers := Within(t, 20*time.Second, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	if !answers {
		cancel()
		_ = c.Wait()
		t.Fatalf("the S3 server does not answer: %s", &log)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
	return "s3://bucket/some/prefix?endpoint=http://" + address + "&region=us-east-1", dir
}
