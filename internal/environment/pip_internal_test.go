package environment

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestErrorsOfPipHaveNoLogin: pip quotes the whole URL of a proxy that it cannot parse.
func TestErrorsOfPipHaveNoLogin(t *testing.T) {
	for _, text := range []string{
		"Traceback:\n  File x\nurllib3.exceptions.LocationParseError: Failed to parse: http://someone:pa ss/w@rd@proxy.example:3128\n",
		"ERROR: cannot use proxy 'http://someone:pass@proxy.example:3128'\n",
	} {
		got := (&saidError{text: text, err: errors.New("exit status 1")}).Error()
		if strings.Contains(got, "someone") || strings.Contains(got, "w@rd") || !strings.Contains(got, "://***@proxy.example:3128") {
			t.Errorf("got %q, want it without the login, and with the host", got)
		}
	}
}

// TestGuarded: pip may ask the loader of musl for its version, because it fails otherwise. It starts no other program.
func TestGuarded(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	dir := t.TempDir()
	for name, fine := range map[string]bool{"ld-musl-x86_64.so.1": true, "keyring": true, "git": false} {
		program, runner := filepath.Join(dir, name), filepath.Join(dir, name+".py")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		for args, started := range map[string]bool{"": fine, ", '/bin/sh'": fine && name == "keyring"} {
			if err := os.WriteFile(runner, []byte("import subprocess\nsubprocess.run(['"+program+"'"+args+"], stderr=subprocess.PIPE)\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), python, "-c", guarded, runner).CombinedOutput(); (err == nil) != started {
				t.Errorf("%s%s: got %v and %s, want it started: %v", name, args, err, out, started)
			}
		}
	}
}

// TestPipGetsNoVariablesThatLoadCode: pip runs outside of sandboxes, and a model may be able to write the files that such a variable names.
func TestPipGetsNoVariablesThatLoadCode(t *testing.T) {
	got := environ([]string{"LD_LIBRARY_PATH=/project/lib", "DYLD_LIBRARY_PATH=/project/lib", "PYTHONPATH=/project", "SANDBOXMCP_API_KEYS=k", "PIP_CERT=/ca.pem"})
	if len(got) == 0 || got[0] != "PIP_CERT=/ca.pem" {
		t.Errorf("got %q, want the certificates first", got)
	}
}
