package enroll

import (
	"bytes"
	"errors"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// showTOML returns a document that has the entry alone.
func showTOML(ch change) ([]byte, error) { return tableTOML(ch, ch.fields) }

// editTOML changes the entry in a TOML document. Its tables are replaced as a whole, where
// they stand or at the end. All other lines stay as they are.
func editTOML(data []byte, ch change) ([]byte, error) {
	before, err := decodeTOML(data)
	if err != nil {
		return nil, err
	}
	if servers, there := before[ch.key]; there {
		if _, ok := servers.(map[string]any); !ok {
			return nil, &placeError{text: ch.key + " has to be a table"}
		}
	}
	was, _ := without(before, ch)
	old, isTable := was.(map[string]any)
	switch {
	case was == nil && ch.fields == nil:
		return data, nil
	case was != nil && !isTable:
		return nil, &placeError{text: "the entry " + ch.server + " has to be a table"}
	case ch.fields != nil && remote(old):
		return nil, &placeError{text: "the entry " + ch.server + " is a server with a URL, which is not replaced"}
	case ch.fields != nil && isTable && sameButFor(before, before, ch):
		return data, nil
	}
	out, at := cut(data, ch)
	if ch.fields != nil {
		table, failed := tableTOML(ch, merged(old, ch.fields))
		if failed != nil {
			return nil, failed
		}
		out = insert(out, at, table)
	}
	after, err := decodeTOML(out)
	if err != nil || !sameButFor(before, after, ch) {
		return nil, &placeError{text: "the entry is not in a table [" + ch.key + "." + ch.server + "] of its own, so it cannot be edited"}
	}
	return out, nil
}

// tableTOML returns the tables of an entry.
func tableTOML(ch change, fields map[string]any) ([]byte, error) {
	var text bytes.Buffer
	enc := toml.NewEncoder(&text)
	if err := enc.Encode(map[string]any{ch.key: map[string]any{ch.server: fields}}); err != nil {
		return nil, err
	}
	_, table, _ := bytes.Cut(text.Bytes(), []byte("["+ch.key+"]\n")) // the table of tables needs no line
	if table == nil {
		table = text.Bytes()
	}
	return table, nil
}

// span is a range of bytes.
type span struct{ from, to int }

// cut returns the document without the tables of the entry, and where the first was, or -1.
// Comments and empty lines at the end of a table belong to the next one and stay.
func cut(data []byte, ch change) (rest []byte, at int) {
	spans := tables(data, ch)
	if len(spans) == 0 {
		return slices.Clone(data), -1
	}
	for i, s := range slices.Backward(spans) {
		end := s.to
		for end > s.from {
			line := bytes.LastIndexByte(data[s.from:end-1], '\n') + 1 + s.from
			if text := bytes.TrimSpace(data[line:end]); len(text) > 0 && text[0] != '#' {
				break
			}
			end = line
		}
		spans[i].to = end
	}
	last := 0
	for _, s := range spans {
		rest = append(rest, data[last:s.from]...)
		last = s.to
	}
	return append(rest, data[last:]...), spans[0].from
}

// tables returns the ranges of the tables of the entry: each from its heading to the next.
func tables(data []byte, ch change) []span {
	var all []span
	var p unstable.Parser
	p.Reset(data)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.Table && e.Kind != unstable.ArrayTable {
			continue
		}
		var key []string
		begin := len(data)
		for it := e.Key(); it.Next(); {
			key = append(key, string(it.Node().Data))
			begin = min(begin, int(it.Node().Raw.Offset))
		}
		begin = bytes.LastIndexByte(data[:begin], '\n') + 1
		if n := len(all); n > 0 && all[n-1].to < 0 {
			all[n-1].to = begin
		}
		if len(key) >= 2 && key[0] == ch.key && key[1] == ch.server {
			all = append(all, span{begin, -1})
		}
	}
	if n := len(all); n > 0 && all[n-1].to < 0 {
		all[n-1].to = len(data)
	}
	return all
}

// insert puts tables at an offset, or at the end with an empty line before them.
func insert(data []byte, at int, table []byte) []byte {
	if at < 0 {
		out := bytes.TrimRight(data, " \t\r\n")
		if len(out) > 0 {
			out = append(slices.Clip(out), "\n\n"...)
		}
		return append(out, table...)
	}
	return slices.Insert(data, at, table...)
}

func decodeTOML(data []byte) (map[string]any, error) {
	doc := map[string]any{}
	err := toml.Unmarshal(data, &doc)
	if err == nil {
		return doc, nil
	}
	at := &placeError{text: err.Error()}
	if e, ok := errors.AsType[*toml.DecodeError](err); ok {
		at.line, at.column = e.Position()
	}
	return nil, at
}
