//go:build unix

package environment_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// withoutFiles calls do while this process can open no file.
func withoutFiles(t *testing.T, do func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	do()
}

// TestAFailureThatPassesIsNotRemembered: that files cannot be read now does not say that they were
// changed. What could not be read is read again; what was changed is refused from then on.
func TestAFailureThatPassesIsNotRemembered(t *testing.T) {
	b := newBench(t)
	b.order.Recipe.Name = "science"
	dir := b.install(t).Set.Dir
	library := b.again()
	withoutFiles(t, func() {
		if sets := library.Active(b.order.Python); len(sets) > 0 {
			t.Errorf("%d sets were read without a file", len(sets))
		}
	})
	if sets := library.Active(b.order.Python); len(sets) != 1 {
		t.Errorf("%d sets are active after that, want 1", len(sets))
	}
	library = b.again()
	p := environment.NewPreloader(t.Context(), library)
	modules, check := p.Modules(b.order.Python, "import numpy")
	if len(modules) == 0 {
		t.Fatal("no modules of the set are imported ahead")
	}
	withoutFiles(t, func() {
		if err := check(t.Context(), false); err == nil {
			t.Error("files were hashed that cannot be opened")
		}
	})
	if modules, _ := p.Modules(b.order.Python, "import numpy"); len(modules) == 0 {
		t.Error("no modules are imported ahead after a failure that passes")
	}
	for _, loaded := range []bool{false, true} {
		if err := check(t.Context(), loaded); err != nil {
			t.Errorf("loaded %v: %v", loaded, err)
		}
	}
	withoutFiles(t, func() { _ = check(t.Context(), true) })
	b.open()
	if err := os.WriteFile(filepath.Join(dir, "site-packages", "core_of_apple.py"), []byte("evil"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(t.Context(), false); err == nil { // it is not taken for known since the last failure
		t.Error("a changed file: got no error")
	}
	if modules, _ := p.Modules(b.order.Python, "import numpy"); modules != nil {
		t.Errorf("modules %q of a changed set are imported ahead", modules)
	}
}
