package sandboxmcp

import "testing"

func TestParseLanguage(t *testing.T) {
	for text, want := range map[string]Language{
		"": Python, "python": Python, "PY": Python, "node": Node, "js": Node, "JavaScript": Node, "shell": Shell, "sh": Shell, "Bash": Shell, "cobol": "", "python3": "",
	} {
		if got, err := ParseLanguage(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}
