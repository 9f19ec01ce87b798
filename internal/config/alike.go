package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// front are the settings that no run depends on: those of doors, of answers over MCP, of the
// log, and run_server. Every other setting counts in
// [Config.Effective], a new one too.
var front = []string{
	"run_server",
	"api_host", "api_port", "artifact_server", "sandbox_http_host", "sandbox_http_port",
	"mcp_answers", "mcp_tools", "mcp_read_only", "mcp_output_chars",
	"cors_origins", "public_url", "oauth_issuer", "oauth_audience", "oauth_keys_url", "oauth_scope", "api_rate",
	"sandbox_log_level", "sandbox_log_file", "sandbox_log_format",
}

// Effective returns every setting in force that a run may depend on, with its secrets, and the
// variables of an environment that may change a run. Two processes with the same text run a
// request alike as far as settings and environment go. The text may be hashed, and must not be
// shown.
func (c *Config) Effective(env []string) []byte {
	var out []byte
	for _, r := range c.rows {
		if slices.Contains(front, r.key) {
			continue
		}
		value, err := json.Marshal(r.into.whole())
		if err != nil {
			value = fmt.Appendf(nil, "%#v", r.into.whole())
		}
		out = append(append(append(out, r.key...), '='), value...)
		out = append(out, '\n')
	}
	for _, kv := range c.inherited(env) {
		out = append(append(out, kv...), 0)
	}
	return out
}

// inherited returns the variables of an environment that are no settings and that a run may
// depend on, in the order of their names. Interpreters are searched with the whole environment,
// because the programs of version managers read it. So inherited leaves out only
// variables of terminals, logins and programs that start this one.
func (c *Config) inherited(env []string) []string {
	settings := make(map[string]bool, len(c.rows))
	for _, r := range c.rows {
		settings[r.env] = true
	}
	var keep []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		upper := name
		if len(name) >= len("SANDBOX_") && strings.EqualFold(name[:len("SANDBOX_")], "SANDBOX_") {
			upper = strings.ToUpper(name)
		}
		if !settings[upper] && !aside(name) {
			keep = append(keep, kv)
		}
	}
	slices.SortStableFunc(keep, func(a, b string) int { // of two with one name the order counts
		x, _, _ := strings.Cut(a, "=")
		y, _, _ := strings.Cut(b, "=")
		return strings.Compare(x, y)
	})
	return keep
}

// asideNames and asidePrefixes are variables of shells, terminals, logins, editors and agents.
// Neither this program nor a version manager reads them.
var (
	asideNames = []string{
		"_", "PWD", "OLDPWD", "SHLVL", "PS1", "PS2", "PROMPT_COMMAND", "HISTFILE", "HISTSIZE", "HISTCONTROL", "MAIL",
		"TERM", "COLORTERM", "COLUMNS", "LINES", "WINDOWID", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "LS_COLORS", "LSCOLORS",
		"LESS", "LESSOPEN", "LESSCLOSE", "PAGER", "MANPAGER", "EDITOR", "VISUAL",
		"TMUX", "TMUX_PANE", "STY", "WINDOW", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "SSH_AGENT_PID",
		"XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS", "XDG_SESSION_DESKTOP", "XDG_CURRENT_DESKTOP", "XDG_SEAT", "XDG_VTNR", "XDG_ACTIVATION_TOKEN", "DESKTOP_STARTUP_ID",
		"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MANAGERPID", "NOTIFY_SOCKET",
	}
	asidePrefixes = []string{
		"TERM_", "VTE_", "KONSOLE_", "ITERM_", "GNOME_TERMINAL_", "KITTY_", "WEZTERM_", "ALACRITTY_", "WT_",
		"VSCODE_", "CURSOR_", "CLAUDE", "CODEX_", "GEMINI_", "MCP_",
	}
)

func aside(name string) bool {
	return slices.Contains(asideNames, name) || slices.ContainsFunc(asidePrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
