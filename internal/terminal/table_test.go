package terminal_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/terminal"
)

func TestTableFitsTheWidth(t *testing.T) {
	rows := [][]string{
		{"SETTING", "VALUE", "SOURCE"},
		{"max_ram_mb", "512", "default"},
		{"host_allowed_commands", strings.Repeat("docker ps,", 40), "default"},
		{"a_very_long_name_of_a_setting_that_has_parts", strings.Repeat("日本", 60), "yaml"},
		{"walls", strings.Repeat("user namespace, mount namespace, ", 20) + strings.Repeat("x", 200), "default"},
	}
	for width := 20; width < 130; width++ {
		lines := terminal.Table(rows, width)
		for _, l := range lines {
			if n := terminal.Columns(l); n > width {
				t.Errorf("width %d: got a line of %d columns: %q", width, n, l)
			}
		}
		letters := func(s string) string { return strings.Join(strings.Fields(s), "") }
		all := letters(strings.Join(lines, ""))
		for _, word := range []string{"512", "yaml"} {
			if !strings.Contains(all, word) {
				t.Errorf("width %d: got no %q in %q", width, word, all)
			}
		}
		if got, want := strings.Count(all, "日"), 60; got != want {
			t.Errorf("width %d: got %d of the wide characters, want %d", width, got, want)
		}
	}
}

func TestTableKeepsWhatFits(t *testing.T) {
	rows := [][]string{{"A", "B"}, {"one", "a longer cell"}, {"\x1b[31mred\x1b[m", ""}}
	want := []string{"A    B", "one  a longer cell", "\x1b[31mred\x1b[m"}
	for _, width := range []int{0, 18, 80} {
		if got := terminal.Table(rows, width); !slices.Equal(got, want) {
			t.Errorf("width %d: got %q, want %q", width, got, want)
		}
	}
}
