package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandsInTextsFindTheSameState: what the program tells a person to run names its path,
// its state directory and its settings, unless they are the defaults.
func TestCommandsInTextsFindTheSameState(t *testing.T) {
	home := t.TempDir()
	bin := filepath.Join(home, "bin")
	program := filepath.Join(bin, "sandboxmcp")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(home, "my settings.yaml")
	if err := os.WriteFile(settings, []byte("state_dir: "+home+"/other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const text = "see `sandboxmcp egress list`"
	for name, c := range map[string]struct {
		env      []string
		settings string
		want     string
	}{
		"default":         {[]string{"PATH=/none"}, "", "see `" + program + " egress list`"},
		"on the PATH":     {[]string{"PATH=/none:" + bin}, "", text},
		"state directory": {[]string{"PATH=" + bin, "SANDBOXMCP_STATE_DIR=/it's"}, "", `see ` + "`" + `SANDBOXMCP_STATE_DIR='/it'\''s' sandboxmcp egress list` + "`"},
		"XDG":             {[]string{"PATH=" + bin, "XDG_STATE_HOME=/xdg"}, "", "see `SANDBOXMCP_STATE_DIR=/xdg/sandboxmcp sandboxmcp egress list`"},
		"settings":        {[]string{"PATH=" + bin}, settings, "see `sandboxmcp egress list --config '" + settings + "'`"},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			a := &App{Env: append(c.env, "HOME="+home), Stderr: &errs, Program: program, Settings: c.settings}
			if _, err := a.Load(); err != nil {
				t.Fatal(err)
			}
			if got := a.Paste(text); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if a.Say(text); !strings.Contains(errs.String(), c.want) {
				t.Errorf("message: got %q, want %s in it", errs.String(), c.want)
			}
		})
	}
}

// TestMessagesAreSeenOnATerminal: a message for a terminal begins with a reset of its colors.
func TestMessagesAreSeenOnATerminal(t *testing.T) {
	for watched, want := range map[bool]string{true: "\x1b[msandboxmcp: asks\n", false: "sandboxmcp: asks\n"} {
		var errs bytes.Buffer
		a := &App{Stderr: &errs, Watched: watched}
		if a.Say("asks"); errs.String() != want {
			t.Errorf("terminal %t: got %q, want %q", watched, errs.String(), want)
		}
	}
}
