package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Five holds the operator's settings of the sandbox_* tools. A zero field means its default.
type Five struct {
	Limits         sandboxmcp.Limits // limits of each run; lower limits of the namespace win. Default: MaxOutputBytes 102,400, otherwise the engine's
	TTL            time.Duration     // lifetime of a session without use; default: the engine's
	MaxCodeBytes   int               // default 102,400
	MaxUploadBytes int64             // default 52,428,800
	MaxReadBytes   int64             // default 10,485,760
	Stateful       bool              // sessions keep variables from run to run
	Network        bool              // runs can reach open domains
}

// session describes the sessions that the five tools make.
func (f Five) session() *sandboxmcp.SessionSpec {
	return &sandboxmcp.SessionSpec{Language: sandboxmcp.Python, Limits: f.Limits, Modest: true, TTL: f.TTL, Fresh: !f.Stateful, Offline: !f.Network}
}

func (f Five) filled() Five {
	f.Limits.MaxOutputBytes = cmp.Or(f.Limits.MaxOutputBytes, 102_400)
	f.MaxCodeBytes = cmp.Or(f.MaxCodeBytes, 102_400)
	f.MaxUploadBytes = cmp.Or(f.MaxUploadBytes, 50<<20)
	f.MaxReadBytes = cmp.Or(f.MaxReadBytes, DefaultMaxRead)
	return f
}

// Bounds of a file, in bytes.
const (
	DefaultMaxRead int64 = 10 << 20 // the default of what one answer returns
	MaxLinked      int64 = 32 << 20 // the largest file that is sent from memory and that is read in parts
)

// uploadFile checks id, length, name and content, in this order. The engine checks whether
// session and file exist.
func (s *Server) uploadFile(ctx context.Context, c *call) (answer, error) {
	id, err := c.args.session("session_id")
	if err != nil {
		return answer{}, err
	}
	five := s.rules().five
	limit, text, name := five.MaxUploadBytes, c.args.text("content_base64"), c.args.text("filename")
	tooLarge := func(size int64) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeUploadTooLarge, "the file has %d bytes, above the limit of %d bytes", size, limit)
	}
	if encoded := int64(len(text)); encoded > (limit+2)/3*4 {
		return answer{}, tooLarge(encoded / 4 * 3)
	}
	if err = checkName(name); err != nil {
		return answer{}, err
	}
	data, err := uploaded(c.args)
	if err != nil {
		return answer{}, err
	}
	if size := int64(len(data)); size > limit {
		return answer{}, tooLarge(size)
	}
	id, path, err := s.engine.Upload(ctx, c.who, sandboxmcp.Upload{
		SessionID: id, Session: five.session(),
		Name: name, Content: data, Overwrite: c.args.flag("overwrite"),
	})
	if err != nil {
		return answer{}, err
	}
	s.tellOfFile(ctx, c.who.Namespace, id, name)
	return answer{body: struct {
		SessionID sandboxmcp.SessionID `json:"session_id"`
		Path      string               `json:"path"`
	}{id, path}}, nil
}

// uploaded returns the bytes of content_base64 or content.
func uploaded(args arguments) ([]byte, error) {
	_, encoded := args["content_base64"]
	_, plain := args["content"]
	if encoded == plain {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "content_base64 or content is needed, and not both").WithHint("pass text as content, everything else as content_base64")
	}
	if plain {
		return []byte(args.text("content")), nil
	}
	return decodeStrict(args.text("content_base64"))
}

// pythonRun has the fields of mcp-code-sandbox in the answer of sandbox_run_python, and those of
// ours that every answer has.
type pythonRun struct {
	SessionID       sandboxmcp.SessionID `json:"session_id"`
	RunID           sandboxmcp.RequestID `json:"run_id"`
	ExitCode        int                  `json:"exit_code"`
	Stdout          string               `json:"stdout"`
	Stderr          string               `json:"stderr"`
	StdoutTruncated bool                 `json:"stdout_truncated"`
	StderrTruncated bool                 `json:"stderr_truncated"`
	Artifacts       any                  `json:"artifacts"` // a list of files
	DurationMS      int64                `json:"duration_ms"`
	Status          sandboxmcp.Status    `json:"status"`
	StateLost       bool                 `json:"state_lost,omitempty"`
	Note            string               `json:"note,omitempty"`
}

// fullPythonRun is an answer in full. Its streams are never shortened.
type fullPythonRun struct {
	pythonRun

	Isolation *sandboxmcp.Isolation `json:"isolation"`
}

func (s *Server) runPython(ctx context.Context, c *call) (answer, error) {
	id, err := c.args.session("session_id")
	if err != nil {
		return answer{}, err
	}
	code, five := c.args.text("code"), s.rules().five
	if size, limit := len(code), five.MaxCodeBytes; size > limit {
		return answer{}, sandboxmcp.Errorf(sandboxmcp.CodeCodeTooLarge, "code has %d bytes, above the limit of %d bytes", size, limit)
	}
	req := sandboxmcp.Request{
		ID:   runID(time.Now()),
		Code: code, Language: sandboxmcp.Python, SessionID: id, Session: five.session(), Offline: !five.Network,
		NoSecrets: true,
		Display:   sandboxmcp.DisplayFigures,
		Limits:    sandboxmcp.Limits{TimeoutSeconds: five.Limits.TimeoutSeconds, MaxOutputBytes: five.Limits.MaxOutputBytes},
		Modest:    true,
		Reader:    sandboxmcp.ReaderPython, Unoffered: s.rules().facts.lacking,
	}
	progress, stop := s.reportProgress(ctx, c.request, nil)
	defer stop()
	progress.follow(&req)
	res, err := s.engine.Execute(ctx, c.who, req)
	if err != nil {
		return answer{}, err
	}
	if res.SessionID != nil {
		id = *res.SessionID
	}
	r := pythonRun{
		SessionID: id, RunID: res.RequestID, ExitCode: res.ExitCode,
		Stdout: res.Stdout, Stderr: res.Stderr,
		StdoutTruncated: res.StdoutTruncated, StderrTruncated: res.StderrTruncated,
		DurationMS: int64(math.Round(res.DurationMS)),
		Status:     res.Status, StateLost: res.StateLost, Note: res.Note,
	}
	files := append(s.newFiles(c.who.Namespace, id, res), s.largeFiles(ctx, c.who, id, res)...)
	if s.small {
		return s.smallRun(ctx, c, r, files, res), nil
	}
	r.Artifacts, res.Artifacts = files, nil // figures are shown; files are read
	blocks, _, _ := s.pictures(ctx, c.who, res)
	return answer{body: fullPythonRun{r, wholeIsolation(res.Isolation)}, blocks: blocks}, nil
}

// runID makes a request id in the format of these tools.
func runID(now time.Time) sandboxmcp.RequestID {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return sandboxmcp.RequestID("run_" + now.UTC().Format("20060102T150405Z") + "_" + hex.EncodeToString(b[:]))
}

// newFiles returns the files directly in /mnt/data that a run with exit code 0 has made or
// changed, without dot files.
func (s *Server) newFiles(ns sandboxmcp.Namespace, id sandboxmcp.SessionID, res sandboxmcp.Result) []sandboxmcp.SessionFile {
	files := []sandboxmcp.SessionFile{}
	if res.ExitCode != 0 {
		return files
	}
	for _, a := range res.Artifacts {
		if strings.Contains(a.Name, "/") || strings.HasPrefix(a.Name, ".") {
			continue
		}
		f := sandboxmcp.SessionFile{
			Path: workDir + "/" + a.Name, Filename: a.Name, SizeBytes: a.SizeBytes,
			MIMEType: bareType(a.MIMEType), SHA256: a.SHA256,
		}
		s.addLink(ns, id, &f)
		files = append(files, f)
	}
	return files
}

// largeFiles returns the files directly in /mnt/data that a run with exit code 0 has made or
// changed, and that are too large to be kept with its result.
func (s *Server) largeFiles(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID, res sandboxmcp.Result) (large []sandboxmcp.SessionFile) {
	names := map[string]bool{}
	for _, f := range skippedFiles(res) {
		if f.SizeBytes > 0 && res.ExitCode == 0 {
			names[f.Name] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	all, err := s.engine.SessionFiles(ctx, who, id)
	if err != nil { // the session has ended, and its files with it
		return nil
	}
	for _, f := range all {
		if names[f.Filename] {
			f.MIMEType = bareType(f.MIMEType)
			s.addLink(who.Namespace, id, &f)
			large = append(large, f)
		}
	}
	return large
}

func (s *Server) addLink(ns sandboxmcp.Namespace, id sandboxmcp.SessionID, f *sandboxmcp.SessionFile) {
	if f.DownloadURL == nil {
		f.DownloadURL = s.link(ns, string(id), f.Path, f.SizeBytes)
	}
}

// bareType returns a MIME type without its parameters.
func bareType(full string) string {
	if t, _, err := mime.ParseMediaType(full); err == nil && strings.Contains(t, "/") {
		return t
	}
	return "application/octet-stream"
}

// readArtifact checks id, session and path, in this order.
func (s *Server) readArtifact(ctx context.Context, c *call) (answer, error) {
	id, err := c.args.session("session_id")
	if err != nil {
		return answer{}, err
	}
	path, err := cleanPath(c.args.text("path"))
	if err != nil {
		if missing := s.present(ctx, c.who, id); missing != nil {
			return answer{}, missing
		}
		return answer{}, err
	}
	as, piece := c.args.text("as"), part{int64(c.args.number("offset")), int64(c.args.number("max_bytes"))}
	if piece.most == 0 && (as == "text" || piece.offset > 0) {
		piece.most = textPart
	}
	f, cut, err := s.readPart(ctx, c.who, id, path, piece)
	if err != nil {
		return answer{}, s.tooLarge(err, c.who.Namespace, id, path)
	}
	body := fileContent{Path: path, Filename: f.Filename, MIMEType: bareType(f.MIMEType), Size: f.SizeBytes}
	var blocks []mcp.Content
	if len(cut) <= maxPictureBytes && piece == (part{}) && as != "text" {
		left := maxDecoded
		if p := s.picture(ctx, body.MIMEType, cut, &left); p != nil {
			blocks = []mcp.Content{p}
		}
	}
	if as == "text" {
		cut = part{most: piece.most}.of(cut)
	}
	if end := piece.offset + int64(len(cut)); piece != (part{}) && end < f.SizeBytes {
		body.Next = &end
	}
	if len(cut) == 0 && piece.offset > 0 {
		body.Note = fmt.Sprintf("Nothing is left from offset %d on: the file has %d bytes.", piece.offset, f.SizeBytes)
	}
	switch as {
	case "text":
		text := string(cut)
		if !readable(cut) {
			return answer{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "%s is not UTF-8 text there", sandboxmcp.Quote(path)).WithHint("read it as base64, or begin at another offset")
		}
		body.Text = &text
	case "image":
		if blocks == nil {
			return answer{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "%s is no PNG, JPEG, WebP or GIF of at most 1 MiB", sandboxmcp.Quote(path)).WithHint("read it as base64, or make it smaller with code")
		}
	default:
		content := base64.StdEncoding.EncodeToString(cut)
		body.Content = &content
	}
	return answer{body: body, blocks: blocks}, nil
}

// textPart is how many bytes of a file are returned as text, or from an offset on, if the caller
// does not say. More than that fills what a model can read at once.
const textPart = 100_000

// readPart returns a part of a file of a session, and the file with its whole size. The bound on
// what is read applies to the part. A part of a file of any size can be read.
func (s *Server) readPart(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID, path string, piece part) (sandboxmcp.SessionFile, []byte, error) {
	most := s.rules().five.MaxReadBytes
	if piece == (part{}) {
		return s.engine.ReadFile(ctx, who, id, path, most)
	}
	f, data, err := s.engine.ReadFile(ctx, who, id, path, max(most, MaxLinked))
	if sandboxmcp.CodeOf(err) == sandboxmcp.CodeArtifactTooLarge {
		return s.readLarge(ctx, who, id, path, piece)
	}
	if err != nil {
		return f, nil, err
	}
	f.SizeBytes = int64(len(data))
	data = piece.bytes(data)
	return f, data, s.checkPart(f, int64(len(data)))
}

// readLarge is readPart for a file that is not read into memory as a whole.
func (s *Server) readLarge(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID, path string, piece part) (sandboxmcp.SessionFile, []byte, error) {
	f, content, err := s.engine.OpenFile(ctx, who, id, path, math.MaxInt64)
	if err != nil {
		return f, nil, err
	}
	defer content.Close()
	n := max(f.SizeBytes-piece.offset, 0)
	if piece.most > 0 {
		n = min(n, piece.most)
	}
	if err = s.checkPart(f, n); err != nil {
		return f, nil, err
	}
	data := make([]byte, n)
	if _, err = content.Seek(piece.offset, io.SeekStart); err == nil {
		_, err = io.ReadFull(content, data)
	}
	if err != nil {
		return f, nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the copy of the file cannot be read").WithCause(err)
	}
	return f, data, nil
}

// checkPart fails if a part of n bytes of a file is above the bound on what is read.
func (s *Server) checkPart(f sandboxmcp.SessionFile, n int64) error {
	if most := s.rules().five.MaxReadBytes; n > most {
		return sandboxmcp.Errorf(sandboxmcp.CodeArtifactTooLarge, "the part has %d bytes; %d are allowed", n, most).With("size_bytes", f.SizeBytes).With("limit_bytes", most)
	}
	return nil
}

// fileContent is the answer of sandbox_read_artifact. It has the content in the form that was
// asked for.
type fileContent struct {
	Path     string  `json:"path"`
	Filename string  `json:"filename"`
	MIMEType string  `json:"mime_type"`
	Size     int64   `json:"size_bytes"` // of the whole file
	Content  *string `json:"content_base64,omitempty"`
	Text     *string `json:"text,omitempty"`
	Next     *int64  `json:"next_offset,omitempty"` // where a part ends, if the file goes on
	Note     string  `json:"note,omitempty"`
}

// present returns nil if the session exists, and else the engine's error.
func (s *Server) present(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	live, err := s.engine.Sessions(ctx, who)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(live, func(x sandboxmcp.Session) bool { return x.ID == id }) {
		return nil
	}
	_, err = s.engine.SessionFiles(ctx, who, id)
	return err
}

// tooLarge adds to artifact_too_large the file's download_url or a hint.
func (s *Server) tooLarge(err error, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, path string) error {
	e, ok := errors.AsType[*sandboxmcp.Error](err)
	if !ok || e.Code != sandboxmcp.CodeArtifactTooLarge {
		return err
	}
	more := *e
	more.Fields = maps.Clone(e.Fields)
	return more.With("download_url", s.link(ns, string(id), path, int64(count(e.Fields["size_bytes"])))).
		WithHint("pass offset and max_bytes to read a part, or make the file smaller with code")
}

func (s *Server) listArtifacts(ctx context.Context, c *call) (answer, error) {
	id, err := c.args.session("session_id")
	if err != nil {
		return answer{}, err
	}
	files, err := s.engine.SessionFiles(ctx, c.who, id)
	if err != nil {
		return answer{}, err
	}
	files = each(files)
	for i := range files {
		files[i].MIMEType = bareType(files[i].MIMEType)
		s.addLink(c.who.Namespace, id, &files[i])
	}
	slices.SortFunc(files, func(a, b sandboxmcp.SessionFile) int { return strings.Compare(a.Filename, b.Filename) })
	if s.small {
		list, more, atLeast := smallFiles(files)
		return answer{body: struct {
			Artifacts []smallPythonFile `json:"artifacts"`
			More      int               `json:"more_artifacts,omitempty"`
			AtLeast   bool              `json:"more_artifacts_at_least,omitempty"` // there are more, which were not counted
		}{list, more, atLeast}}, nil
	}
	if n := len(files); n > 0 && s.set == FiveTools {
		files[n-1].More = false // its fields are those of mcp-code-sandbox
	}
	return answer{body: struct {
		Artifacts []sandboxmcp.SessionFile `json:"artifacts"`
	}{files}}, nil
}

// closeSession fails during a run. terminate_session would end the run.
func (s *Server) closeSession(ctx context.Context, c *call) (answer, error) {
	id, err := c.args.session("session_id")
	if err != nil {
		return answer{}, err
	}
	if err := s.engine.CloseSession(ctx, c.who, id); err != nil {
		return answer{}, err
	}
	return answer{body: struct {
		Status string `json:"status"`
	}{"closed"}}, nil
}
