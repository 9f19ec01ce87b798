// Command release builds everything that a release publishes, from the sources alone: static
// programs, archives, Debian packages, MCP bundles, container images, bills of materials, the
// entry of the MCP registry, and the checksums of all of them.
//
// The result depends on the sources, the version, the time and the Go toolchain, and on nothing
// else of the machine: two builds give the same bytes. An image has Debian's packages in it
// besides, if -base names a root file system for it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, log io.Writer) error {
	r := release{log: log, bases: map[string]string{}}
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.SetOutput(log)
	f.StringVar(&r.root, "root", "", "`DIR` of the sources")
	f.StringVar(&r.out, "out", "", "`DIR` for the release; it must not exist")
	f.StringVar(&r.version, "version", "", "`VERSION` without v")
	epoch := f.String("epoch", "", "`SECONDS` since 1970: the time of every file of the release")
	only := f.String("only", "", "`OS/ARCH,…` to build, instead of all")
	key := f.String("key", "", "`FILE` with the private key that signs the checksums; without it they are not signed")
	f.Func("base", "`ARCH=FILE`: a tar of the root file system below the program in the image of ARCH", func(v string) error {
		arch, file, ok := strings.Cut(v, "=")
		if !ok || arch == "" || file == "" {
			return errors.New("want ARCH=FILE")
		}
		r.bases[arch] = file
		return nil
	})
	if err := f.Parse(args); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(*epoch, 10, 64)
	if r.root == "" || r.out == "" || r.version == "" || err != nil || f.NArg() > 0 {
		return errors.New("usage: release -root DIR -out DIR -version VERSION -epoch SECONDS [-only OS/ARCH,…] [-base ARCH=FILE]… [-key FILE]")
	}
	r.when = time.Unix(seconds, 0).UTC()
	if r.targets, err = choose(*only); err != nil {
		return err
	}
	if *key != "" {
		if r.key, err = readKey(*key); err != nil {
			return err
		}
	}
	for _, dir := range []*string{&r.root, &r.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	return r.build(ctx)
}
