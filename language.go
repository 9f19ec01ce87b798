package sandboxmcp

import "strings"

// Language is the programming language of a piece of code.
type Language string

// The supported languages. The zero Language means [Python].
const (
	Python Language = "python"
	Node   Language = "node"
	Shell  Language = "shell"
)

// Languages returns all languages in display order.
func Languages() []Language { return []Language{Python, Node, Shell} }

// aliases are other names of languages that callers use.
var aliases = map[string]Language{"py": Python, "js": Node, "javascript": Node, "sh": Shell, "bash": Shell}

// ParseLanguage returns the language of that name in any case; the empty string means [Python].
// The names py, js, javascript, sh and bash are accepted, too. Anything else fails with
// [CodeUnsupportedLanguage], and the error lists the valid names.
func ParseLanguage(s string) (Language, error) {
	if s == "" {
		return Python, nil
	}
	name := strings.ToLower(s)
	for _, l := range Languages() {
		if name == string(l) || aliases[name] == l {
			return l, nil
		}
	}
	return "", &Error{
		Code:    CodeUnsupportedLanguage,
		Message: "language " + Quote(s) + " is not supported",
		Hint:    "use one of python, node, shell",
	}
}

// LanguageOf returns the language of a program file: by its extension, or else by its "#!"
// line, or else [Python].
func LanguageOf(name, code string) Language {
	ext := ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		ext = strings.ToLower(name[i+1:])
	}
	switch ext {
	case "py":
		return Python
	case "js", "mjs", "cjs":
		return Node
	case "sh", "bash":
		return Shell
	}
	line, _, _ := strings.Cut(code, "\n")
	if !strings.HasPrefix(line, "#!") {
		return Python
	}
	words := strings.FieldsSeq(line[2:])
	for w := range words {
		w = w[strings.LastIndexByte(w, '/')+1:]
		switch {
		case w == "env" || strings.HasPrefix(w, "-"):
			continue
		case strings.HasPrefix(w, "node"):
			return Node
		case w == "sh" || w == "bash" || w == "dash":
			return Shell
		}
		break
	}
	return Python
}
