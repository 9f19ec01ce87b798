package kernel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
)

// What comes on the channel: frames of 4 bytes of length, big-endian, and a
// JSON object of so many bytes. The member "type" says what it is.
//
//	{"type":"start"}                                      the program was compiled and now begins
//	{"type":"syntax","name","message","line","col"}       it was not compiled; before start only
//	{"type":"display","data":{mime: form}}                a value to show
//	{"type":"error","name","value","traceback":[lines]}   it ended by an exception; the last one counts
//
// An interpreter that takes cells says more; see Interpreter. A type that is not
// known is skipped, so that later drivers may say more. The program shares the
// channel with its driver, so every word may be forged: a frame can make a result
// say what the program could as well have printed, and nothing else. That is why
// syntax is not believed after start, for it claims that nothing of the program
// ran.
const (
	MaxFrame   = 1 << 20 // bytes of one frame
	MaxReport  = 8 << 20 // bytes of all frames of a run
	maxResults = 256
	maxName    = 256
	maxText    = 64 << 10 // bytes of an error's value, a syntax message, a traceback
	maxLines   = 200      // of a traceback
)

// maxOf bounds the frames of each type.
var maxOf = map[string]int{"ready": 64, "start": 64, "syntax": 512 << 10, "error": 1 << 20, "display": MaxFrame, "done": 256}

// displayTypes are the forms that are taken from a display frame; true where
// the form is a JSON value and not a text.
var displayTypes = map[string]bool{
	"text/plain": false, "text/html": false, "text/markdown": false, "text/latex": false,
	"image/png": false, "image/jpeg": false, "image/svg+xml": false,
	"application/json": true, "application/vnd.plotly.v1+json": true,
}

// Report is what a program's driver told of it.
type Report struct {
	Started bool                     // the program was compiled, and began
	Error   *sandboxmcp.ProgramError // the uncaught exception
	Syntax  *SyntaxError             // why the program was not compiled; never with Started
	Results []sandboxmcp.RichResult  // values to show, in order; not nil
	Done    bool                     // a cell: its driver said that it ended, and the interpreter is there for the next
	Exit    int                      // a cell that is done: its exit code, as if it had been a program of its own
}

// SyntaxError tells why a program could not be compiled.
type SyntaxError struct {
	Name    string // "SyntaxError", "IndentationError", "TabError"
	Line    int    // from 1; 0: not known
	Col     int    // from 1; 0: not known
	Message string
}

// Read reads a channel to its end. What follows a frame that cannot be right is
// read and thrown away, so that the program can go on writing, and what was right
// before it counts. Read holds at most MaxFrame bytes of input at a time and takes
// at most MaxReport in all. show is called for each value to show, as it comes; it
// may be nil, the values are in the Report as well. The error is ErrUnread when
// reading ended in any other way than by the end of the channel.
func Read(r io.Reader, show func(sandboxmcp.RichResult)) (Report, error) {
	rep := Report{Results: []sandboxmcp.RichResult{}}
	for left := MaxReport; ; {
		w, err := readWord(r, left)
		if errors.Is(err, errNoFrame) {
			break
		}
		if err != nil {
			return rep, unread(err)
		}
		left -= w.size
		if v := rep.take(w); v != nil && show != nil {
			show(v)
		}
	}
	_, err := io.Copy(io.Discard, r)
	return rep, unread(err)
}

// ErrUnread says that a channel could not be read to its end. Frames of the program may be
// lost.
var ErrUnread = errors.New("the program's channel could not be read to its end")

// unread wraps an error as ErrUnread. It returns nil for the end of a channel, also in the
// middle of a frame.
func unread(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnread, err)
}

// errNoFrame tells that what came cannot be a frame.
var errNoFrame = errors.New("not a frame")

// readWord reads one frame, of at most limit bytes. The error is the reader's
// or errNoFrame.
func readWord(r io.Reader, limit int) (word, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return word{}, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > min(MaxFrame, int64(limit)) {
		return word{}, errNoFrame
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return word{}, err
	}
	w := word{size: len(body)}
	if json.Unmarshal(body, &w) != nil || w.Type == "" {
		return word{}, errNoFrame
	}
	if most, known := maxOf[w.Type]; known && len(body) > most {
		return word{}, errNoFrame
	}
	return w, nil
}

// word is a frame's text. Which members mean something depends on its type.
type word struct {
	Type      string                     `json:"type"`
	ID        uint64                     `json:"id"` // of the cell; 0 where there are no cells
	Name      string                     `json:"name"`
	Message   string                     `json:"message"`
	Value     string                     `json:"value"`
	Line      int                        `json:"line"`
	Col       int                        `json:"col"`
	Traceback []string                   `json:"traceback"`
	Data      map[string]json.RawMessage `json:"data"`
	OK        bool                       `json:"ok"`
	Exit      *int                       `json:"exit"`
	size      int                        // bytes of the frame
}

// take adds what one frame says, and returns the value that it shows, if any.
func (rep *Report) take(w word) sandboxmcp.RichResult {
	switch w.Type {
	case "start":
		rep.Started, rep.Syntax = true, nil
	case "syntax":
		if !rep.Started && rep.Syntax == nil {
			rep.Syntax = &SyntaxError{Name: cut(w.Name, maxName), Line: max(w.Line, 0), Col: max(w.Col, 0), Message: cut(w.Message, maxText)}
		}
	case "error":
		rep.Error = &sandboxmcp.ProgramError{Name: cut(w.Name, maxName), Value: cut(w.Value, maxText), Traceback: cutLines(w.Traceback)}
	case "done":
		rep.Done, rep.Exit = true, exitOf(w)
	case "display":
		if b := bundle(w.Data); b != nil && len(rep.Results) < maxResults {
			rep.Results = append(rep.Results, b)
			return b
		}
	}
	return nil
}

// exitOf is the exit code of a cell that is done.
func exitOf(w word) int {
	switch {
	case w.Exit != nil:
		return *w.Exit & 0xff
	case w.OK:
		return 0
	default:
		return 1
	}
}

// bundle takes the forms that are known and that can be handed on; nil when there
// is none.
func bundle(data map[string]json.RawMessage) sandboxmcp.RichResult {
	b := sandboxmcp.RichResult{}
	for mime, isJSON := range displayTypes {
		raw, ok := data[mime]
		if !ok {
			continue
		}
		if isJSON {
			if form, err := cleanShown(raw); err == nil {
				b[mime] = form
			}
			continue
		}
		var text string
		if json.Unmarshal(raw, &text) == nil {
			b[mime] = text
		}
	}
	if len(b) == 0 {
		return nil
	}
	b["is_main_result"] = string(data["is_main_result"]) == "true"
	return b
}

// cut returns s cut to limit bytes, at the border of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

// cutLines keeps the last lines of a traceback, where the cause stands.
func cutLines(lines []string) []string {
	kept, room := []string{}, maxText
	for _, l := range slices.Backward(lines[max(0, len(lines)-maxLines):]) {
		if room -= len(l); room < 0 {
			break
		}
		kept = append(kept, l)
	}
	slices.Reverse(kept)
	return kept
}
