package artifact

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// inlineOutput is the length in bytes up to which an output is stored in its row. Longer
// outputs are stored as blobs.
const inlineOutput = 64 << 10

// Record is an ended request in the form that Save stores.
type Record struct {
	// Result is the whole result with the content of its artifacts. Collect has stored that
	// content as blobs.
	Result    sandboxmcp.Result
	CreatedAt time.Time
	EndedAt   time.Time
	Named     bool // the caller chose the request's id
}

// Save returns the step that adds a record to the database. It stores long outputs as blobs
// before it returns. The request is unknown until the step is committed.
//
// If the results of the namespace then exceed MaxBytes, the step drops the oldest. For each
// of them it runs the step that drop returns. After the commit the caller calls
// [Keeper.Discard], which removes their content.
//
// The step can be kept as a note unless the record is named or has content of its own, which
// must not wait in memory. If the request has a record already, the step fails. That of a note
// adds nothing then: its id is random, so a caller of another server has taken it for a run.
func (k *Keeper) Save(ctx context.Context, rec Record, drop func(Dropped) store.Op) (store.Note, error) {
	r := rec.Result
	stdout, err := k.output(ctx, r.Stdout)
	if err != nil {
		return store.Note{}, err
	}
	stderr, err := k.output(ctx, r.Stderr)
	if err != nil {
		return store.Note{}, err
	}
	content := contents(r, stdout, stderr)
	waits := !rec.Named && len(content) == 0
	rows, err := newRows(rec, stdout, stderr)
	if err != nil {
		return store.Note{}, err
	}
	n := store.Note{Op: func(ctx context.Context, tx *sql.Tx) error {
		// A sweep may have discarded these blobs, because no row referred to them yet.
		bad := errors.Join(k.restore(ctx, content), rows.insert(ctx, tx, !waits))
		if bad != nil || k.hasRoom(rows.Namespace, rows.Bytes) {
			return bad
		}
		return k.makeRoom(ctx, tx, rows.Namespace, rows.RequestID, drop)
	}}
	if !waits {
		return n, nil
	}
	n.Kind = noteKind
	n.Data, err = rows.note()
	return n, err
}

// noteKind is the kind of the notes of [Keeper.Save].
const noteKind = "result"

// Notes makes the steps of results that another process has kept. They drop no other result;
// the next Save and Sweep of the namespace do.
func Notes() store.NoteMakers {
	return store.NoteMakers{noteKind: func(data []byte) (store.Op, error) {
		r, err := noted(data)
		if err != nil {
			return nil, fmt.Errorf("keep result: %w", err)
		}
		return func(ctx context.Context, tx *sql.Tx) error { return r.insert(ctx, tx, false) }, nil
	}}
}

// rows are the rows of a record, as they are stored.
type rows struct {
	RequestID        sandboxmcp.RequestID
	Namespace        sandboxmcp.Namespace
	SessionID        *sandboxmcp.SessionID
	Language         sandboxmcp.Language
	Status           sandboxmcp.Status
	ExitCode         int
	Created, Ended   string
	Result           string // JSON
	Stdout, Stderr   []byte
	OutBlob, ErrBlob sql.NullString
	Receipt          sql.NullString // JSON
	Artifacts        []sandboxmcp.Artifact
	Bytes            int64 // of the record, with its content
}

func newRows(rec Record, stdout, stderr output) (*rows, error) {
	r := rec.Result
	n := &rows{
		RequestID: r.RequestID, Namespace: r.Namespace, SessionID: r.SessionID, Language: r.Language, Status: r.Status, ExitCode: r.ExitCode,
		Created: store.FormatTime(rec.CreatedAt), Ended: store.FormatTime(rec.EndedAt),
		Stdout: stdout.inline, Stderr: stderr.inline, OutBlob: stdout.blob, ErrBlob: stderr.blob, Artifacts: r.Artifacts,
	}
	if r.Receipt != nil {
		text, err := json.Marshal(r.Receipt)
		if err != nil {
			return nil, fmt.Errorf("encode receipt: %w", err)
		}
		n.Receipt = sql.NullString{String: string(text), Valid: true}
	}
	r.Stdout, r.Stderr, r.Artifacts, r.Receipt = "", "", nil, nil
	result, err := r.MarshalJSON() // json.Marshal would read it once more
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	n.Result = string(result)
	n.Bytes = stdout.size + stderr.size + int64(len(result)+len(n.Receipt.String)) + rowBytes
	for _, a := range n.Artifacts {
		n.Bytes += a.SizeBytes + int64(len(a.Name)+len(a.Path)+len(a.MIMEType)+len(a.Signature)) + rowBytes
	}
	return n, nil
}

// noteForm is the first byte of a note in the form of [rows.note]. Earlier notes are JSON alone.
const noteForm = 1

// note returns the rows as the data of a note: the long texts as they are, each after its length, and then the rest as JSON.
// JSON within JSON would be read and quoted byte by byte.
func (r *rows) note() ([]byte, error) {
	rest := *r
	rest.Result, rest.Receipt.String, rest.Stdout, rest.Stderr = "", "", nil, nil
	text, err := json.Marshal(&rest)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	data := make([]byte, 0, 32+len(r.Result)+len(r.Receipt.String)+len(r.Stdout)+len(r.Stderr)+len(text))
	data = append(data, noteForm)
	for _, part := range []string{r.Result, r.Receipt.String, string(r.Stdout), string(r.Stderr)} {
		data = binary.AppendUvarint(data, uint64(len(part)))
		data = append(data, part...)
	}
	return append(data, text...), nil
}

// noted reads the data of a note.
func noted(data []byte) (r *rows, err error) {
	r = &rows{}
	if len(data) == 0 || data[0] != noteForm {
		return r, json.Unmarshal(data, r)
	}
	data = data[1:]
	var parts [4][]byte
	for i := range parts {
		n, used := binary.Uvarint(data)
		if used <= 0 || n > uint64(len(data)-used) {
			return nil, io.ErrUnexpectedEOF
		}
		parts[i], data = data[used:][:n], data[used:][n:]
	}
	if err = json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	r.Result, r.Receipt.String = string(parts[0]), string(parts[1])
	if !r.OutBlob.Valid {
		r.Stdout = parts[2]
	}
	if !r.ErrBlob.Valid {
		r.Stderr = parts[3]
	}
	return r, nil
}

// insert adds the rows, as a step of an Update. If the request has a record already, insert
// fails if anew is set, and otherwise adds nothing.
func (r *rows) insert(ctx context.Context, tx *sql.Tx, anew bool) error {
	query := insertExecution
	if !anew {
		query += orNothing
	}
	done, err := tx.ExecContext(ctx, query,
		r.RequestID, r.Namespace, r.SessionID, r.Language, r.Status, r.ExitCode, r.Created, r.Ended,
		r.Result, r.Stdout, r.Stderr, r.OutBlob, r.ErrBlob, r.Receipt, r.Bytes)
	if err != nil {
		return fmt.Errorf("keep result: %w", err)
	}
	if added, err := done.RowsAffected(); err != nil || added == 0 {
		return err
	}
	for _, a := range r.Artifacts {
		_, err := tx.ExecContext(ctx, insertArtifact,
			r.RequestID, a.Name, a.Path, a.MIMEType, a.SizeBytes, a.SHA256, a.Signature, store.FormatTime(a.CreatedAt))
		if err != nil {
			return fmt.Errorf("keep artifact: %w", err)
		}
	}
	return nil
}

// rowBytes is the assumed size of a row without its texts.
const rowBytes = 256

// contents returns the blobs that a result refers to, by their SHA-256.
func contents(r sandboxmcp.Result, stdout, stderr output) map[string][]byte {
	all := map[string][]byte{}
	for _, a := range r.Artifacts {
		all[a.SHA256] = a.ContentB64
	}
	if stdout.blob.Valid {
		all[stdout.blob.String] = []byte(r.Stdout)
	}
	if stderr.blob.Valid {
		all[stderr.blob.String] = []byte(r.Stderr)
	}
	return all
}

// restore writes missing blobs again.
//
// Preconditions: the caller is in a transaction, so no blob can be discarded until it ends.
func (k *Keeper) restore(ctx context.Context, content map[string][]byte) error {
	for sum, data := range content {
		if k.store.HasBlob(sum, int64(len(data))) {
			continue
		}
		got, err := k.store.PutBlob(ctx, data)
		if err != nil {
			return err
		}
		if got != sum {
			return sandboxmcp.Errorf(sandboxmcp.CodeInternal, "the content of %s is gone", sum)
		}
	}
	return nil
}

// output is a stored stream. It is in the row or in a blob.
type output struct {
	inline []byte
	blob   sql.NullString
	size   int64
}

func (k *Keeper) output(ctx context.Context, text string) (output, error) {
	if len(text) <= inlineOutput {
		return output{inline: []byte(text), size: int64(len(text))}, nil
	}
	sum, err := k.store.PutBlob(ctx, []byte(text))
	return output{blob: sql.NullString{String: sum, Valid: true}, size: int64(len(text))}, err
}

func notFound(id sandboxmcp.RequestID) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "request %s is not known", sandboxmcp.Quote(string(id)))
}

// Stored reports whether the request has a stored result. Unlike Load it does not wait for the
// newest results of other servers.
func (k *Keeper) Stored(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID) (stored bool, err error) {
	if err = k.store.Recover(ctx); err == nil {
		err = k.store.DB().QueryRowContext(ctx, selectStored, id, ns).Scan(&stored)
	}
	return stored, err
}

// Load returns a stored result, with the content of its artifacts if content is set.
// Metadata has the types of decoded JSON, except that "skipped" is a
// []sandboxmcp.SkippedFile. If the request is unknown, dropped, or of another namespace,
// Load fails with request_not_found. Load waits while two others load.
func (k *Keeper) Load(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID, content bool) (sandboxmcp.Result, error) {
	select {
	case k.loading <- struct{}{}:
		defer func() { <-k.loading }()
	case <-ctx.Done():
		return sandboxmcp.Result{}, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "loading the result was cancelled").WithCause(context.Cause(ctx))
	}
	if err := k.store.Settle(ctx); err != nil {
		return sandboxmcp.Result{}, err
	}
	var text []byte
	var out, errs output
	of := claim{ns: ns, id: id}
	err := k.store.DB().QueryRowContext(ctx, selectExecution, id, ns).
		Scan(&text, &out.inline, &errs.inline, &out.blob, &errs.blob, &of.receipt)
	if errors.Is(err, sql.ErrNoRows) {
		return sandboxmcp.Result{}, notFound(id)
	}
	if err != nil {
		return sandboxmcp.Result{}, fmt.Errorf("load result: %w", err)
	}
	var r sandboxmcp.Result
	if err = decode(text, &r); err != nil {
		return sandboxmcp.Result{}, fmt.Errorf("load result: %w", err)
	}
	if err = retype(r.Metadata); err != nil {
		return sandboxmcp.Result{}, fmt.Errorf("load result: %w", err)
	}
	if of.receipt.Valid {
		r.Receipt = &sandboxmcp.Receipt{}
		if err = decode([]byte(of.receipt.String), r.Receipt); err != nil {
			return sandboxmcp.Result{}, fmt.Errorf("load receipt: %w", err)
		}
	}
	stdout, err := k.text(ctx, &of, out)
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	stderr, err := k.text(ctx, &of, errs)
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	r.Stdout, r.Stderr = string(stdout), string(stderr)
	if r.Artifacts, err = k.artifacts(ctx, &r, ""); err != nil {
		return sandboxmcp.Result{}, err
	}
	for i := range r.Artifacts {
		if !content {
			break
		}
		if r.Artifacts[i].ContentB64, err = k.blob(ctx, &of, r.Artifacts[i].SHA256); err != nil {
			return sandboxmcp.Result{}, err
		}
	}
	return r, nil
}

// decode reads JSON and keeps large numbers exact.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// retype converts the skipped files in decoded metadata back to their type.
func retype(metadata map[string]any) error {
	kept, ok := metadata["skipped"]
	if !ok {
		return nil
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	var skipped []sandboxmcp.SkippedFile
	if err := decode(text, &skipped); err != nil {
		return fmt.Errorf("skipped files: %w", err)
	}
	metadata["skipped"] = skipped
	return nil
}

// artifacts returns the artifacts of a request without their content. If name is not empty,
// it returns only the one of that name.
func (k *Keeper) artifacts(ctx context.Context, r *sandboxmcp.Result, name string) ([]sandboxmcp.Artifact, error) {
	rows, err := k.store.DB().QueryContext(ctx, selectArtifacts, r.RequestID, name, name)
	if err != nil {
		return nil, fmt.Errorf("load artifacts: %w", err)
	}
	defer rows.Close()
	list := []sandboxmcp.Artifact{}
	for rows.Next() {
		var a sandboxmcp.Artifact
		var created string
		if err = rows.Scan(&a.Name, &a.Path, &a.MIMEType, &a.SizeBytes, &a.SHA256, &a.Signature, &created); err != nil {
			return nil, fmt.Errorf("load artifacts: %w", err)
		}
		if a.CreatedAt, err = store.ParseTime(created); err != nil {
			return nil, fmt.Errorf("load artifacts: %w", err)
		}
		a.URI = uri(r.RequestID, r.SessionID, a.Name)
		list = append(list, a)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("load artifacts: %w", err)
	}
	return list, nil
}

// Output returns a whole stored stream, "stdout" or "stderr".
func (k *Keeper) Output(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID, stream string) ([]byte, error) {
	query, ok := map[string]string{"stdout": selectStdout, "stderr": selectStderr}[stream]
	if !ok {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "stream %s is neither stdout nor stderr", sandboxmcp.Quote(stream))
	}
	if err := k.store.Settle(ctx); err != nil {
		return nil, err
	}
	var o output
	of := claim{ns: ns, id: id}
	err := k.store.DB().QueryRowContext(ctx, query, id, ns).Scan(&o.inline, &o.blob, &of.receipt)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", stream, err)
	}
	return k.text(ctx, &of, o)
}

// Content returns one artifact with its content. name is its path below /mnt/data. If the
// request has no artifact of that name, Content fails with not_found.
func (k *Keeper) Content(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID, name string) (sandboxmcp.Artifact, error) {
	if err := k.store.Settle(ctx); err != nil {
		return sandboxmcp.Artifact{}, err
	}
	r, of := sandboxmcp.Result{RequestID: id}, claim{ns: ns, id: id}
	err := k.store.DB().QueryRowContext(ctx, selectSession, id, ns).Scan(&r.SessionID, &of.receipt)
	if errors.Is(err, sql.ErrNoRows) {
		return sandboxmcp.Artifact{}, notFound(id)
	}
	if err != nil {
		return sandboxmcp.Artifact{}, fmt.Errorf("load artifact: %w", err)
	}
	var list []sandboxmcp.Artifact
	if name != "" {
		if list, err = k.artifacts(ctx, &r, name); err != nil {
			return sandboxmcp.Artifact{}, err
		}
	}
	if len(list) == 0 {
		return sandboxmcp.Artifact{}, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the request left no file %s", sandboxmcp.Quote(name))
	}
	a := list[0]
	a.ContentB64, err = k.blob(ctx, &of, a.SHA256)
	return a, err
}

// OfSession returns the newest artifact of that name among the runs of a session, with its
// content. If there is none, it fails with not_found.
func (k *Keeper) OfSession(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, name string) (sandboxmcp.Artifact, error) {
	if err := k.store.Settle(ctx); err != nil {
		return sandboxmcp.Artifact{}, err
	}
	var newest sandboxmcp.RequestID
	err := k.store.DB().QueryRowContext(ctx, selectNewestOf, ns, id, name).Scan(&newest)
	if errors.Is(err, sql.ErrNoRows) {
		return sandboxmcp.Artifact{}, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "no run of the session left a file %s", sandboxmcp.Quote(name))
	}
	if err != nil {
		return sandboxmcp.Artifact{}, fmt.Errorf("load artifact: %w", err)
	}
	return k.Content(ctx, ns, newest, name)
}

func (k *Keeper) text(ctx context.Context, of *claim, o output) ([]byte, error) {
	if !o.blob.Valid {
		return o.inline, nil
	}
	return k.blob(ctx, of, o.blob.String)
}
