// Command tree fails if the tree of HEAD contains a blob that is too large, or if the benchmark was
// measured too many commits ago.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	maxBlob = 1 << 20 // bytes
	maxAge  = 200     // commits since the benchmark was measured

	benchmarks = "docs/benchmarks.md"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tree:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 2 {
		switch args[0] {
		case "blobs":
			return blobs(ctx, args[1])
		case "benchmarks":
			return recent(ctx, args[1])
		}
	}
	return errors.New("usage: tree blobs DIR | tree benchmarks DIR")
}

// blobs fails with the name and size of each blob above maxBlob in the tree of HEAD.
func blobs(ctx context.Context, dir string) error {
	list, err := git(ctx, dir, "ls-tree", "-r", "-l", "-z", "HEAD")
	if err != nil {
		return err
	}
	var faults []error
	n := 0
	for entry := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		about, name, _ := strings.Cut(entry, "\t")
		fields := strings.Fields(about) // mode, type, object, size
		if len(fields) != 4 || fields[1] != "blob" {
			continue
		}
		size, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return fmt.Errorf("size of %s: %w", name, err)
		}
		n++
		if size > maxBlob {
			faults = append(faults, fmt.Errorf("%s has %d bytes, want at most %d", name, size, maxBlob))
		}
	}
	if n == 0 {
		return errors.New("no blob was found in the tree of HEAD")
	}
	return errors.Join(faults...)
}

var atCommit = regexp.MustCompile(`(?m)^Measured on .* at commit ([0-9a-f]{7,40})\b`)

// recent fails if the benchmark does not name a commit of this history, or if that commit is more
// than maxAge commits old.
func recent(ctx context.Context, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(benchmarks)))
	if err != nil {
		return err
	}
	m := atCommit.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("%s does not say at which commit it was measured; run `make bench`", benchmarks)
	}
	count, err := git(ctx, dir, "rev-list", "--count", string(m[1])+"..HEAD")
	if err != nil {
		return fmt.Errorf("%s was measured at %s: %w", benchmarks, m[1], err)
	}
	age, err := strconv.Atoi(strings.TrimSpace(count))
	if err != nil {
		return err
	}
	if age > maxAge {
		return fmt.Errorf("%s was measured at %s, %d commits ago, want at most %d; run `make bench`", benchmarks, m[1], age, maxAge)
	}
	return nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(failed.Stderr)))
	}
	return string(out), err
}
