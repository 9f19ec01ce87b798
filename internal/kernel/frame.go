package kernel

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/pynames"
)

// A driver writes frames to the channel: a length of 4 bytes, big-endian, and a JSON
// object of that length. Its member "type" is the type of the frame.
//
//	{"type":"try"}                                        the program may run or may not compile; before start or syntax; no refusal follows
//	{"type":"start"}                                      the program was compiled and now starts
//	{"type":"compiled"}                                   the program was compiled, and packages may be imported before it starts; no refusal and no syntax follows
//	{"type":"refused","issues":…}                         Program.Guard refuses the program, which does not start; only before try
//	{"type":"fixed","fixes":[words]}                      names were bound that the program lacks; only before start
//	{"type":"syntax","name","message","line","col"}       the program was not compiled; only before start and compiled
//	{"type":"display","data":{mime: form}}                a value to show
//	{"type":"error","name","value","traceback":[lines]}   the program ended by an exception; the last frame counts
//
// An interpreter that runs cells writes further types; see Interpreter. Read ignores
// unknown types, so that later drivers can add some. The program shares the channel with
// its driver, so every frame may be forged. Frames can therefore only change parts of a
// result that the program could also have printed. A "syntax" frame after "start" is
// ignored, because it would claim that no code has run.
const (
	MaxFrame   = 1 << 20       // bytes of one frame
	MaxReport  = 8 << 20       // bytes of the display frames of a run
	maxRead    = 2 * MaxReport // bytes of all frames of a program
	leastFrame = 1 << 10       // bytes that a frame counts for at least, because each takes the server's time; a driver sends few small ones
	partCost   = 64            // bytes that a member or element counts for, because decoding it takes time; a driver sends few of them
	maxResults = 256
	maxName    = 256
	maxText    = 64 << 10 // bytes of an error's value, a syntax message, a traceback
	maxLines   = 200      // lines of a traceback
	maxFixes   = 40
)

// Began is the frame of a driver whose program now starts.
const Began = "\x00\x00\x00\x10" + `{"type":"start"}`

// maxOf is the size limit of a frame by its type.
var maxOf = map[string]int{"ready": 64, "try": 64, "compiled": 64, "start": 64, "fixed": 4096, "refused": 256 << 10, "syntax": 512 << 10, "error": 1 << 20, "display": MaxFrame, "done": 256, "install": 16 << 10}

// displayTypes are the MIME types that are accepted in a display frame. True means that
// the value is JSON and not a string.
var displayTypes = map[string]bool{
	"text/plain": false, "text/html": false, "text/markdown": false, "text/latex": false,
	"image/png": false, "image/jpeg": false, "image/svg+xml": false,
	"application/json": true, "application/vnd.plotly.v1+json": true,
}

// Report is what the driver reported about a program.
type Report struct {
	Tried   bool                     // a part of it, or a module that it brings, may have run before it is known to be compiled
	Sound   bool                     // single programs only: it was compiled
	Started bool                     // the program was compiled, and began
	Error   *sandboxmcp.ProgramError // the uncaught exception
	Syntax  *SyntaxError             // why the program was not compiled; never with Started
	Refused json.RawMessage          // what Program.Guard returned: it has refused the program; never with Started or Tried
	Fixes   []string                 // names that were bound before the program ran, as "added import json"
	Results []sandboxmcp.RichResult  // values to show, in order; not nil
	Cut     bool                     // further values were left out: they are too many or too large
	Done    bool                     // cells only: the cell has ended and the interpreter can run the next one
	Exit    int                      // cells only, if Done: the exit code that the cell would have as a program
}

// SyntaxError says why a program could not be compiled.
type SyntaxError struct {
	Name    string // "SyntaxError", "IndentationError", "TabError"
	Line    int    // from 1; 0: unknown
	Col     int    // from 1; 0: unknown
	Message string
}

// Read reads a channel to end of file. After an invalid frame it discards the rest, so
// that the program can go on writing; the frames before it count. Read holds at most
// MaxFrame bytes of input at a time. It accepts at most MaxReport bytes of display frames,
// and twice as many of all frames, as word.cost counts them. It calls show for each value to show, as it arrives;
// show may be nil, because the values are in the Report, too. The error is ErrUnread if
// the channel could not be read to end of file.
func Read(channel io.Reader, show func(sandboxmcp.RichResult)) (Report, error) {
	r := bufio.NewReader(channel) // one read takes all frames that have arrived, with their lengths
	rep := Report{Results: []sandboxmcp.RichResult{}}
	room := MaxReport
	for left := maxRead; ; {
		w, err := readWord(r, left)
		rep.Cut = rep.Cut || errors.Is(err, errFull)
		if errors.Is(err, errNoFrame) || errors.Is(err, errFull) {
			break
		}
		if err != nil {
			return rep, unread(err)
		}
		left -= w.cost()
		if v := rep.takeWithin(&room, w); v != nil && show != nil {
			show(v)
		}
	}
	_, err := io.Copy(io.Discard, r)
	return rep, unread(err)
}

// ErrUnread means that a channel could not be read to its end. Frames may be lost.
var ErrUnread = errors.New("the program's channel could not be read to its end")

// unread wraps an error as ErrUnread. It returns nil for end of file, also if that comes
// in the middle of a frame.
func unread(err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnread, err)
}

var (
	errNoFrame = errors.New("not a frame")     // the bytes are not a valid frame
	errFull    = errors.New("too many frames") // the frame has more bytes than may still be read
)

// readWord reads one frame of at most limit bytes. The error is that of the reader,
// errNoFrame or errFull.
func readWord(r io.Reader, limit int) (word, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return word{}, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	switch {
	case n > MaxFrame:
		return word{}, errNoFrame
	case n > int64(limit):
		return word{}, errFull
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return word{}, err
	}
	w := word{size: len(body)}
	if json.Unmarshal(body, &w) != nil || w.Type == "" {
		return word{}, errNoFrame
	}
	w.parts = parts(body)
	if most, known := maxOf[w.Type]; known && len(body) > most {
		return word{}, errNoFrame
	}
	return w, nil
}

// word is a decoded frame. Each type uses some of the members.
type word struct {
	Type      string                     `json:"type"`
	ID        uint64                     `json:"id"` // of the cell; 0: the frame belongs to no cell
	Name      string                     `json:"name"`
	Message   string                     `json:"message"`
	Value     string                     `json:"value"`
	Line      int                        `json:"line"`
	Col       int                        `json:"col"`
	Traceback []string                   `json:"traceback"`
	Data      map[string]json.RawMessage `json:"data"`
	Fixes     []string                   `json:"fixes"`
	Issues    json.RawMessage            `json:"issues"`
	OK        bool                       `json:"ok"`
	Exit      *int                       `json:"exit"`
	Language  sandboxmcp.Language        `json:"language"`
	Packages  []string                   `json:"packages"`
	size      int                        // bytes of the JSON object
	parts     int                        // see parts
}

// cost is how many bytes the frame counts for.
func (w *word) cost() int { return max(w.size, leastFrame) + partCost*w.parts }

// parts counts the commas of a frame between its own members and between those of its
// members. Values to show are deeper. body is valid JSON.
func parts(body []byte) int {
	n, depth := 0, 0
	for i := 0; i < len(body); {
		end := i + 1
		switch body[i] {
		case '"':
			end = endOfString(body, i)
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth <= 2 {
				n++
			}
		}
		i = end
	}
	return n
}

// takeWithin is take, but leaves out a display frame with more than *room bytes, and all that
// follow it.
func (rep *Report) takeWithin(room *int, w word) sandboxmcp.RichResult {
	if w.Type == "display" {
		if *room -= w.size; *room < 0 {
			rep.Cut = true
			return nil
		}
	}
	return rep.take(w)
}

// take adds a frame to the report. If the frame shows a value, take returns it.
func (rep *Report) take(w word) sandboxmcp.RichResult {
	switch w.Type {
	case "try":
		rep.Tried = true
	case "start":
		rep.Started, rep.Syntax, rep.Refused = true, nil, nil
	case "compiled":
		rep.Tried, rep.Sound = true, true
	case "refused":
		if !rep.Started && !rep.Tried && rep.Refused == nil {
			rep.Refused = w.Issues
		}
	case "fixed":
		if !rep.Started && rep.Fixes == nil {
			rep.Fixes = slices.DeleteFunc(w.Fixes[:min(len(w.Fixes), maxFixes)], func(f string) bool { return !pynames.IsAdded(f) })
		}
	case "syntax":
		if !rep.Started && !rep.Sound && rep.Syntax == nil {
			rep.Syntax = &SyntaxError{Name: cut(w.Name, maxName), Line: max(w.Line, 0), Col: max(w.Col, 0), Message: cut(w.Message, maxText)}
		}
	case "error":
		rep.Error = &sandboxmcp.ProgramError{Name: cut(w.Name, maxName), Value: cut(withoutStack(w.Value), maxText), Traceback: cutLines(w.Traceback)}
	case "done":
		rep.Done, rep.Exit = true, exitOf(w)
	case "display":
		if len(rep.Results) == maxResults {
			rep.Cut = true
		} else if b := bundle(w.Data); b != nil {
			rep.Results = append(rep.Results, b)
			return b
		}
	}
	return nil
}

// exitOf returns the exit code in a "done" frame.
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

// bundle returns the forms of a value whose MIME types are accepted and whose content is
// valid. It returns nil if no form qualifies.
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

// cut returns at most limit bytes of s and never a part of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

// cutLines keeps the last lines of a traceback, which name the error.
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

// withoutStack returns a message of Node.js without the list of files that required a module. The
// traceback has it.
func withoutStack(message string) string {
	if !strings.HasPrefix(message, "Cannot find module '") {
		return message
	}
	first, _, _ := strings.Cut(message, "\nRequire stack:\n")
	return first
}
