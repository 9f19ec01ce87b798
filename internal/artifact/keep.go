package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// inlineOutput is the longest output that stands in the database itself: a run
// with little to say costs no file.
const inlineOutput = 64 << 10

// stamp is how times stand in the database: text order is time order.
const stamp = "2006-01-02T15:04:05.000000000Z07:00"

// Record is what is kept of a request that has ended.
type Record struct {
	// Result is the whole result, with the content of its artifacts, which is
	// among the blobs since Collect under the artifacts' SHA256.
	Result    sandboxmcp.Result
	CreatedAt time.Time
	EndedAt   time.Time
}

// Save returns the step that writes a record into the database. Long outputs
// are put among the blobs before Save returns; nothing is known of the request
// until the step has been committed. A request that is kept already fails it.
//
// The step drops the namespace's oldest results when the record is more than
// MaxBytes allows, with the step that note returns for each. Call
// [Keeper.Discard] after the commit: it removes their content.
func (k *Keeper) Save(ctx context.Context, rec Record, note func(Dropped) store.Op) (store.Op, error) {
	r := rec.Result
	stdout, err := k.output(ctx, r.Stdout)
	if err != nil {
		return nil, err
	}
	stderr, err := k.output(ctx, r.Stderr)
	if err != nil {
		return nil, err
	}
	var receipt sql.NullString
	if r.Receipt != nil {
		text, rerr := json.Marshal(r.Receipt)
		if rerr != nil {
			return nil, fmt.Errorf("encode receipt: %w", rerr)
		}
		receipt = sql.NullString{String: string(text), Valid: true}
	}
	artifacts, content := r.Artifacts, contents(r, stdout, stderr)
	r.Stdout, r.Stderr, r.Artifacts, r.Receipt = "", "", nil, nil
	result, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	size := stdout.size + stderr.size + int64(len(result)+len(receipt.String)) + rowBytes
	for _, a := range artifacts {
		size += a.SizeBytes + int64(len(a.Name)+len(a.Path)+len(a.MIMEType)+len(a.Signature)) + rowBytes
	}
	return func(ctx context.Context, tx *sql.Tx) error {
		// A blob that no row names may have been discarded since it was put.
		if err := k.restore(ctx, content); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO executions (request_id, namespace, session_id, language, status, exit_code, created_at, ended_at, result, stdout, stderr, stdout_blob, stderr_blob, receipt, bytes)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.RequestID, r.Namespace, r.SessionID, r.Language, r.Status, r.ExitCode, rec.CreatedAt.UTC().Format(stamp), rec.EndedAt.UTC().Format(stamp),
			string(result), stdout.inline, stderr.inline, stdout.blob, stderr.blob, receipt, size)
		if err != nil {
			return fmt.Errorf("keep result: %w", err)
		}
		for _, a := range artifacts {
			_, err := tx.ExecContext(ctx, `INSERT INTO artifacts (request_id, name, path, mime_type, size_bytes, sha256, signature, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
				r.RequestID, a.Name, a.Path, a.MIMEType, a.SizeBytes, a.SHA256, a.Signature, a.CreatedAt.UTC().Format(stamp))
			if err != nil {
				return fmt.Errorf("keep artifact: %w", err)
			}
		}
		return k.makeRoom(ctx, tx, r.Namespace, r.RequestID, note)
	}, nil
}

// rowBytes is counted for a row of the database besides its texts.
const rowBytes = 256

// contents returns the blobs that a result names, by their SHA-256.
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

// restore writes blobs again that are gone. It is called in a transaction, and until
// that ends nothing can discard them.
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

// output is where a stream is kept: in the row, or among the blobs.
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

// Load returns a kept result, whole, with the content of its artifacts if asked
// for. Metadata is as JSON gives it, but for "skipped", which is a
// []sandboxmcp.SkippedFile as it was. A request that is not known, no longer kept, or another namespace's is
// request_not_found. Load waits while others are loading.
func (k *Keeper) Load(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID, content bool) (sandboxmcp.Result, error) {
	select {
	case k.loading <- struct{}{}:
		defer func() { <-k.loading }()
	case <-ctx.Done():
		return sandboxmcp.Result{}, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "loading the result was cancelled").WithCause(context.Cause(ctx))
	}
	var text []byte
	var out, errs output
	var receipt sql.NullString
	err := k.store.DB().QueryRowContext(ctx, `SELECT result, stdout, stderr, stdout_blob, stderr_blob, receipt FROM executions WHERE request_id = ? AND namespace = ?`, id, ns).
		Scan(&text, &out.inline, &errs.inline, &out.blob, &errs.blob, &receipt)
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
	if receipt.Valid {
		r.Receipt = &sandboxmcp.Receipt{}
		if err = decode([]byte(receipt.String), r.Receipt); err != nil {
			return sandboxmcp.Result{}, fmt.Errorf("load receipt: %w", err)
		}
	}
	stdout, err := k.text(out)
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	stderr, err := k.text(errs)
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
		if r.Artifacts[i].ContentB64, err = k.blob(r.Artifacts[i].SHA256); err != nil {
			return sandboxmcp.Result{}, err
		}
	}
	return r, nil
}

// decode reads JSON without bending large numbers.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

// retype gives the skipped files the type again that they had in the process
// that ran the request.
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

// artifacts returns the rows of a request, or the one of that name, without content.
func (k *Keeper) artifacts(ctx context.Context, r *sandboxmcp.Result, name string) ([]sandboxmcp.Artifact, error) {
	rows, err := k.store.DB().QueryContext(ctx, `SELECT name, path, mime_type, size_bytes, sha256, signature, created_at FROM artifacts WHERE request_id = ? AND (? = '' OR name = ?) ORDER BY name`, r.RequestID, name, name)
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
		if a.CreatedAt, err = time.Parse(stamp, created); err != nil {
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

// Output returns a stream, "stdout" or "stderr", whole as it was kept.
func (k *Keeper) Output(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID, stream string) ([]byte, error) {
	query, ok := map[string]string{
		"stdout": `SELECT stdout, stdout_blob FROM executions WHERE request_id = ? AND namespace = ?`,
		"stderr": `SELECT stderr, stderr_blob FROM executions WHERE request_id = ? AND namespace = ?`,
	}[stream]
	if !ok {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "stream %s is neither stdout nor stderr", sandboxmcp.Quote(stream))
	}
	var o output
	err := k.store.DB().QueryRowContext(ctx, query, id, ns).Scan(&o.inline, &o.blob)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", stream, err)
	}
	return k.text(o)
}

// Content returns one artifact with its content. The name is its path below
// /mnt/data. A name that the request did not leave is not_found.
func (k *Keeper) Content(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID, name string) (sandboxmcp.Artifact, error) {
	r := sandboxmcp.Result{RequestID: id}
	err := k.store.DB().QueryRowContext(ctx, `SELECT session_id FROM executions WHERE request_id = ? AND namespace = ?`, id, ns).Scan(&r.SessionID)
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
	a.ContentB64, err = k.blob(a.SHA256)
	return a, err
}

func (k *Keeper) text(o output) ([]byte, error) {
	if !o.blob.Valid {
		return o.inline, nil
	}
	return k.blob(o.blob.String)
}

// blob reads a blob and makes sure that it is what was kept.
func (k *Keeper) blob(sum string) ([]byte, error) {
	f, err := k.store.OpenBlob(sum)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the content is no longer kept").WithCause(err)
	}
	if err != nil {
		return nil, fmt.Errorf("open content: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read content: %w", err)
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != sum {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInternal, "kept content was changed on disk: it does not have the SHA-256 %s", sum)
	}
	return data, nil
}
