package server

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// WriteDocs writes docs/tools.md: every tool of the table with its parameters,
// its annotations and the fields of its answer.
func WriteDocs(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Tools\n\nGenerated from the tool table; do not edit.\n\n" +
		"Every tool takes the parameters that are listed here, and `namespace`, which may only name the caller's own (`default` always does); any other parameter is refused. An answer is one JSON object, as structured content and as text alike. " +
		"With `mcp_answers: full`, stdout and stderr above 39,000 characters together and the content of larger files are cut to what clients can read, with the uri of the whole. A failure has `isError` and the fields `error`, `message` and `hint`; see errors.md.\n")
	for _, t := range toolTable(newFacts(Told{}, Five{}, true, false)) {
		writeTool(&b, t)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeTool(b *strings.Builder, t tool) {
	fmt.Fprintf(b, "\n## %s\n\n*%s.* %s\n\n", t.name, t.title, t.description)
	fmt.Fprintf(b, "Read-only %s, destructive %s, idempotent %s, open world %s.\n\n",
		yesNo(t.hints.readOnly), yesNo(t.hints.destructive), yesNo(t.hints.idempotent), yesNo(t.hints.openWorld))
	if len(t.in.PropertyOrder) == 0 {
		b.WriteString("No parameters.\n")
	} else {
		b.WriteString("| parameter | type | default | meaning |\n|---|---|---|---|\n")
	}
	for _, name := range t.in.PropertyOrder {
		p := t.in.Properties[name]
		value := "–"
		if slices.Contains(t.in.Required, name) {
			value = "required"
		} else if p.Default != nil {
			value = "`" + string(p.Default) + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, kindWords(p), value, cell(p.Description))
	}
	b.WriteString("\nAnswer: ")
	for i, name := range t.out.PropertyOrder {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("`" + name + "`")
	}
	b.WriteString(".\n")
}

// kindWords describes the type of a parameter, with its allowed values or bounds.
func kindWords(s *jsonschema.Schema) string {
	words := []string{kindsOf(s, func(kind string) string { return kind })}
	if len(s.PropertyOrder) > 0 {
		words = append(words, "of `"+strings.Join(s.PropertyOrder, "`, `")+"`")
	}
	for _, v := range s.Enum {
		words = append(words, fmt.Sprintf("`%v`", v))
	}
	if s.Minimum != nil {
		words = append(words, "≥ "+digits(*s.Minimum))
	}
	if s.ExclusiveMinimum != nil {
		words = append(words, "> "+digits(*s.ExclusiveMinimum))
	}
	if s.Maximum != nil {
		words = append(words, "≤ "+digits(*s.Maximum))
	}
	return strings.Join(words, " ")
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func yesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}
