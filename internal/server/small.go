package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Limits of a small answer besides those of every answer.
const (
	maxFiles     = 20      // entries in artifacts
	maxExamples  = 3       // entries in artifacts of a run that has more of them than maxFiles
	filesChars   = 3_000   // characters of all entries
	manyFiles    = 20      // a folder with more files is one entry
	textBytes    = 2 << 10 // a text file of at most this size is in the answer
	maxSkipNames = 5       // entries in skipped
)

// smallResult is a result in the form that a model reads. Besides the first seven fields it has
// only those that say something.
type smallResult struct {
	RequestID  sandboxmcp.RequestID `json:"request_id"`
	Success    *bool                `json:"success"`   // null: not ended
	ExitCode   *int                 `json:"exit_code"` // likewise
	Stdout     string               `json:"stdout"`
	Stderr     string               `json:"stderr"`
	DurationMS *float64             `json:"duration_ms,omitempty"` // nil: not ended
	Status     sandboxmcp.Status    `json:"status"`

	ElapsedSeconds  float64                  `json:"elapsed_seconds,omitempty"` // of a program that runs, rounded up
	TimeoutSeconds  float64                  `json:"timeout_seconds,omitempty"` // likewise
	Note            string                   `json:"note,omitempty"`
	SessionID       *sandboxmcp.SessionID    `json:"session_id,omitempty"`
	SessionCreated  bool                     `json:"session_created,omitempty"`
	StateLost       bool                     `json:"state_lost,omitempty"`
	StateLostIn     []sandboxmcp.Language    `json:"state_lost_in,omitempty"` // empty: in all
	Signal          string                   `json:"signal,omitempty"`
	StdoutTruncated bool                     `json:"stdout_truncated,omitempty"`
	StderrTruncated bool                     `json:"stderr_truncated,omitempty"`
	StdoutURI       string                   `json:"stdout_uri,omitempty"`
	StderrURI       string                   `json:"stderr_uri,omitempty"`
	Error           *smallError              `json:"error,omitempty"`
	Results         []sandboxmcp.RichResult  `json:"results,omitempty"`
	Artifacts       []smallFile              `json:"artifacts,omitempty"`
	MoreArtifacts   int                      `json:"more_artifacts,omitempty"`          // those that are in neither list
	AtLeast         bool                     `json:"more_artifacts_at_least,omitempty"` // there are more, which were not counted
	HowToGet        string                   `json:"how_to_get,omitempty"`
	Skipped         []sandboxmcp.SkippedFile `json:"skipped,omitempty"`
	SkippedReasons  map[string]int           `json:"skipped_reasons,omitempty"` // if Skipped has not all
	Network         *smallNetwork            `json:"network,omitempty"`
	Clamped         any                      `json:"clamped,omitempty"`
	QueuePlace      any                      `json:"queue_place,omitempty"`
	Isolation       any                      `json:"isolation,omitempty"` // a short text, or the whole if it was asked for
	Manifest        map[string]string        `json:"manifest,omitempty"`
	Receipt         *sandboxmcp.Receipt      `json:"receipt,omitempty"`
}

type smallError struct {
	Name      string   `json:"name"`
	Value     string   `json:"value"`
	Traceback []string `json:"traceback,omitempty"` // left out if stderr has it
}

type smallNetwork struct {
	Allowed []string     `json:"allowed,omitempty"`
	Denied  []smallVisit `json:"denied,omitempty"`
	Failed  []smallVisit `json:"failed,omitempty"`
}

// smallVisit is a [sandboxmcp.DeniedRequest].
type smallVisit struct {
	Host   string `json:"host"`
	Port   int    `json:"port,omitempty"`
	Times  int    `json:"times"`
	Reason string `json:"reason,omitempty"`
}

func smallVisits(all []sandboxmcp.DeniedRequest) []smallVisit {
	var list []smallVisit
	for _, v := range all {
		list = append(list, smallVisit{v.Host, v.Port, v.Times, v.Reason})
	}
	return list
}

// smallFile is a file, or a folder with many files.
type smallFile struct {
	Name        string  `json:"name"` // a folder's ends with a slash
	Files       int     `json:"files,omitempty"`
	MIMEType    string  `json:"mime_type,omitempty"`
	SizeBytes   int64   `json:"size_bytes"`
	URI         string  `json:"uri,omitempty"`
	DownloadURL *string `json:"download_url,omitempty"`
	Text        *string `json:"text,omitempty"`

	*signedFile
}

// signedFile is what get_artifacts adds to a file.
type signedFile struct {
	Path       string `json:"path"`
	SHA256     string `json:"sha256"`
	Signature  string `json:"signature"`
	CreatedAt  string `json:"created_at"`
	ContentB64 []byte `json:"content_b64,omitempty"`
}

// showSmall is show for small answers.
func (s *Server) showSmall(ctx context.Context, c *call, res sandboxmcp.Result, v view) answer {
	r := smallResult{
		RequestID: res.RequestID, Status: res.Status, Note: res.Note,
		ElapsedSeconds: math.Ceil(res.ElapsedSeconds*10) / 10, TimeoutSeconds: res.TimeoutSeconds,
		SessionID: res.SessionID, SessionCreated: res.SessionCreated, StateLost: res.StateLost, StateLostIn: res.StateLostIn, Signal: res.Signal,
		StdoutTruncated: res.StdoutTruncated, StderrTruncated: res.StderrTruncated,
		Error: shortError(res), Isolation: weakness(res.Isolation),
		Clamped: clamped(res), QueuePlace: res.Metadata["queue_place"],
	}
	if res.Status != sandboxmcp.StatusRunning {
		r.Success, r.ExitCode, r.DurationMS = &res.Success, &res.ExitCode, &res.DurationMS
	}
	if n := res.Network; len(n.Allowed)+len(n.Denied)+len(n.Failed) > 0 {
		r.Network = &smallNetwork{n.Allowed, smallVisits(n.Denied), smallVisits(n.Failed)}
	}
	if v.receipt && v.manifest {
		r.Receipt = res.Receipt
		if whole := wholeIsolation(res.Isolation); whole != nil {
			r.Isolation = whole
		}
	}
	skipped := r.skip(res)
	links := r.files(s, c, res, v)
	r.MoreArtifacts += skipped
	if v.manifest && res.Status != sandboxmcp.StatusRunning {
		r.Manifest = map[string]string{}
		for _, f := range r.Artifacts {
			if f.signedFile != nil {
				r.Manifest[f.Name] = f.SHA256
			}
		}
	}
	var pictures []mcp.Content
	var shown map[int]bool
	if v.content {
		var more int
		if pictures, more, shown = s.pictures(ctx, c.who, res); more > 0 {
			r.Note = sentences(r.Note, leftOut(more, res.RequestID))
		}
	}
	if !linksKnown(c.request.ProtocolVersion()) {
		links = nil
	}
	r.Stdout, r.Stderr, r.StdoutURI, r.StderrURI = smallStreams(res, s.smallRoom)
	r.Results = s.smallResults(res, shown, r.Stdout)
	r.Note = sentences(r.Note, shownInPart(r.Note, streamShown{r.Stdout, r.StdoutURI}, streamShown{r.Stderr, r.StderrURI}))
	return answer{body: &r, blocks: slices.Concat(links, pictures)}
}

// sentences joins those that are not empty.
func sentences(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), " ")
}

// smallRoom returns how many characters both streams of a small answer have.
func (s *Server) smallRoom() int { return s.rules().outputChars }

// clamped returns the limits that were lowered: what was asked and given if that is known, or
// their names.
func clamped(res sandboxmcp.Result) any {
	if v := res.Metadata["clamped_values"]; v != nil {
		return v
	}
	return res.Metadata["clamped"]
}

// weakness says in short what is weak; nil: nothing is.
func weakness(i *sandboxmcp.Isolation) any {
	if i == nil || len(i.Weak) == 0 {
		return nil
	}
	return fmt.Sprintf("%s, %d weak", i.Tier, len(i.Weak))
}

// shortError returns the exception, with its traceback only if stderr does not show it.
func shortError(res sandboxmcp.Result) *smallError {
	e := shownException(res.Error)
	if e == nil {
		return nil
	}
	first, _, _ := strings.Cut(res.Error.Value, "\n")
	if strings.Contains(res.Stderr, res.Error.Name) && strings.Contains(res.Stderr, first) {
		e.Traceback = nil
	}
	return &smallError{e.Name, e.Value, e.Traceback}
}

// smallResults returns each rich result in one form. It leaves out a result that stdout shows already in lines of its own. A
// match within a line does not suffice: a number may be part of another one by chance. pictured has the indexes of the
// pictures that are blocks of the answer.
func (s *Server) smallResults(res sandboxmcp.Result, pictured map[int]bool, stdout string) []sandboxmcp.RichResult {
	var list []sandboxmcp.RichResult
	left, said := resultChars, "\n"+ends(stdout)+"\n"
	for i, bundle := range res.Results {
		kind, value := bestForm(bundle)
		if kind == "" {
			continue
		}
		if text, ok := value.(string); ok {
			if text = strings.Trim(text, "\n"); text != "" && strings.Contains(said, "\n"+text+"\n") {
				continue
			}
		}
		if strings.HasPrefix(kind, "image/") && kind != "image/svg+xml" {
			state := "shown"
			if !pictured[i] {
				state = "not shown; whole at " + runURI(res.RequestID, "result")
			}
			list = append(list, sandboxmcp.RichResult{kind: state})
			continue
		}
		if text, ok := value.(string); ok && kind == "text/plain" {
			value = shownPlain(text, min(left, valueChars), "whole at "+runURI(res.RequestID, "result"))
		}
		shown, took := shownValue(kind, value, left, runURI(res.RequestID, "result"))
		left -= min(took, left)
		list = append(list, sandboxmcp.RichResult{kind: shown})
	}
	return list
}

// searched is how many bytes at the beginning and at the end of an output are searched for values.
const searched = 32 << 10

// ends returns the beginning and the end of a long output. A search of the whole output for each value would take too long:
// 27 s of CPU time for 250 values and 63 MB.
func ends(text string) string {
	if len(text) <= 2*searched {
		return text
	}
	return text[:searched] + "\x00" + text[len(text)-searched:]
}

// bestForm returns the form of a value that a model reads best. A picture comes before its text,
// which only names its class.
func bestForm(bundle sandboxmcp.RichResult) (kind string, value any) {
	for _, kind := range []string{"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain", "text/markdown", "application/json", "text/html"} {
		if v, ok := bundle[kind]; ok {
			return kind, v
		}
	}
	kinds := make([]string, 0, len(bundle))
	for kind := range bundle {
		if strings.Contains(kind, "/") {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return "", nil
	}
	kind = slices.Min(kinds)
	return kind, bundle[kind]
}

// skip sets the files that were not kept, and returns how many of them it has not listed.
func (r *smallResult) skip(res sandboxmcp.Result) int {
	named := skippedFiles(res)
	total := max(count(res.Metadata["skipped_total"]), filesOf(named))
	r.Skipped = named[:min(len(named), maxSkipNames)]
	if total > filesOf(r.Skipped) || len(named) > len(r.Skipped) {
		r.SkippedReasons = map[string]int{}
		for _, f := range named {
			r.SkippedReasons[f.Reason]++
		}
		if rest := total - filesOf(named); rest > 0 {
			r.SkippedReasons["not listed"] = rest
		}
	}
	r.AtLeast, _ = res.Metadata["skipped_partial"].(bool)
	if rest := r.SkippedReasons["not listed"]; r.AtLeast && rest > 0 {
		delete(r.SkippedReasons, "not listed")
		r.SkippedReasons["not listed, at least"] = rest
	}
	return total - filesOf(r.Skipped)
}

// filesOf counts the rows that are files. The others are directories of which not all files were
// looked at.
func filesOf(skipped []sandboxmcp.SkippedFile) (n int) {
	for _, f := range skipped {
		if !strings.HasSuffix(f.Name, "/") && !strings.HasSuffix(f.Name, "/…") {
			n++
		}
	}
	return n
}

// skippedFiles returns the files that were not kept, as far as they are named.
func skippedFiles(res sandboxmcp.Result) []sandboxmcp.SkippedFile {
	all, _ := res.Metadata["skipped"].([]sandboxmcp.SkippedFile)
	return slices.DeleteFunc(slices.Clone(all), func(f sandboxmcp.SkippedFile) bool { return f.Name == "…" })
}

// count returns a number of metadata, which is a float if it comes from a stored result.
func count(v any) int {
	switch n := v.(type) {
	case int:
		return n
	case int64:
		return int(n)
	case float64:
		return int(n)
	case json.Number:
		i, _ := n.Int64()
		return int(i)
	}
	return 0
}

// files sets the entries of files and folders, and returns links to the files whose text is
// not in the answer.
func (r *smallResult) files(s *Server, c *call, res sandboxmcp.Result, v view) (links []mcp.Content) {
	entries, left := folders(res.Artifacts), filesChars
	beyond, most := len(res.Artifacts), maxFiles
	if len(entries) > maxFiles && !v.manifest {
		most = maxExamples
	}
	for _, e := range entries {
		f := s.smallFile(c, res, e, v)
		size := chars(f)
		if size > left && f.Text != nil {
			f.Text = nil
			size = chars(f)
		}
		if len(r.Artifacts) == most || size > left {
			break
		}
		left -= size
		beyond -= max(f.Files, 1)
		if f.Files == 0 && f.Text == nil {
			links = append(links, &mcp.ResourceLink{URI: f.URI, Name: f.Name, MIMEType: f.MIMEType, Size: &e.SizeBytes})
		}
		if f.Files == 0 && f.DownloadURL == nil {
			r.HowToGet = "The user runs `" + s.invocation.Line("artifacts "+string(res.RequestID)+" --out DIR") + "` in a terminal."
		}
		r.Artifacts = append(r.Artifacts, f)
	}
	r.MoreArtifacts = beyond
	return links
}

// chars returns how many characters a file has in the answer, besides its signature.
func chars(f smallFile) int {
	f.signedFile = nil
	text, err := encode(f)
	if err != nil { // encoding the answer will report it
		return 0
	}
	return utf8.RuneCount(text) + 1
}

// entry is an artifact, or a folder with more than manyFiles of them.
type entry struct {
	sandboxmcp.Artifact
	files int // 0: a file
}

// folders puts files into folders, as entries in the order of their names, files first.
func folders(list []sandboxmcp.Artifact) []entry {
	inside := map[string]int{}
	for _, a := range list {
		inside[folder(a.Name)]++
	}
	var files, dirs []entry
	for _, a := range list {
		dir := folder(a.Name)
		if dir == "" || inside[dir] <= manyFiles {
			files = append(files, entry{Artifact: a})
			continue
		}
		i := slices.IndexFunc(dirs, func(e entry) bool { return e.Name == dir })
		if i < 0 {
			dirs = append(dirs, entry{Artifact: sandboxmcp.Artifact{Name: dir}})
			i = len(dirs) - 1
		}
		dirs[i].files++
		dirs[i].SizeBytes += a.SizeBytes
	}
	return append(files, dirs...)
}

// folder returns the topmost folder of a name, with a slash; "" for none.
func folder(name string) string {
	if dir, _, ok := strings.Cut(name, "/"); ok {
		return dir + "/"
	}
	return ""
}

func (s *Server) smallFile(c *call, res sandboxmcp.Result, e entry, v view) smallFile {
	f := smallFile{Name: e.Name, Files: e.files, SizeBytes: e.SizeBytes}
	if e.files > 0 {
		return f
	}
	f.MIMEType, f.URI, f.DownloadURL = bareType(e.MIMEType), e.URI, e.DownloadURL
	if f.DownloadURL == nil {
		f.DownloadURL = s.link(c.who.Namespace, string(res.RequestID), e.Name, e.SizeBytes)
	}
	if v.content && 0 < len(e.ContentB64) && len(e.ContentB64) <= textBytes && readable(e.ContentB64) && path.Ext(e.Name) != ".svg" {
		text := string(e.ContentB64)
		f.Text = &text
	}
	if v.manifest {
		f.signedFile = &signedFile{Path: e.Path, SHA256: e.SHA256, Signature: e.Signature, CreatedAt: e.CreatedAt.Format("2006-01-02T15:04:05.999999Z07:00")}
		if v.explicit && f.Text == nil && len(e.ContentB64) <= inlineBytes {
			f.ContentB64 = e.ContentB64
		}
	}
	return f
}

// readable reports whether data is text that a model can read.
func readable(data []byte) bool { return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 }

// orJust returns a text, or another one if the text names a tool that the server lacks.
func (s *Server) orJust(text, other string) string {
	if s.rules().facts.all(text) {
		return text
	}
	return other
}

// smallPythonRun is a small answer of sandbox_run_python.
type smallPythonRun struct {
	pythonRun

	StdoutURI string `json:"stdout_uri,omitempty"`
	StderrURI string `json:"stderr_uri,omitempty"`
	Isolation any    `json:"isolation,omitempty"` // a short text
}

// smallPythonFile has the fields of a file of mcp-code-sandbox.
type smallPythonFile struct {
	Path        string  `json:"path"`
	Filename    string  `json:"filename"`
	SizeBytes   int64   `json:"size_bytes"`
	MIMEType    string  `json:"mime_type"`
	DownloadURL *string `json:"download_url"`
}

// smallRun makes the small answer of a run. all has the files that it made or changed.
func (s *Server) smallRun(ctx context.Context, c *call, run pythonRun, all []sandboxmcp.SessionFile, res sandboxmcp.Result) answer {
	files, left := []smallPythonFile{}, filesChars
	for _, f := range all[:min(len(all), maxFiles)] {
		if left -= 2*cost(f.Filename) + 120; left < 0 {
			break
		}
		files = append(files, smallPythonFile{f.Path, f.Filename, f.SizeBytes, f.MIMEType, f.DownloadURL})
	}
	pictures, more, _ := s.pictures(ctx, c.who, res)
	notes := []string{res.Note}
	if n := len(all) - len(files); n > 0 {
		notes = append(notes, s.orJust(fmt.Sprintf("%d more files: call sandbox_list_artifacts.", n), fmt.Sprintf("%d more files are not listed.", n)))
	}
	if more > 0 {
		notes = append(notes, s.orJust(fmt.Sprintf("%d more pictures are not shown: call sandbox_read_artifact.", more), fmt.Sprintf("%d more pictures are not shown.", more)))
	}
	r := smallPythonRun{pythonRun: run, Isolation: weakness(res.Isolation)}
	r.Artifacts, r.Note = files, sentences(notes...)
	r.Stdout, r.Stderr, r.StdoutURI, r.StderrURI = smallStreams(res, s.smallRoom)
	r.Note = sentences(r.Note, shownInPart(r.Note, streamShown{r.Stdout, r.StdoutURI}, streamShown{r.Stderr, r.StderrURI}))
	return answer{body: r, blocks: pictures}
}
