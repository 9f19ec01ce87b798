package store

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// maxSchema bounds the file of sameSchema. PostgreSQL has names of 63 bytes.
const maxSchema = 1024

// sameSchema fails if the first connection has led to another schema than those of earlier processes of the state directory. A writer of
// the database can change the search path of a role or of the database. Later processes would then have a copy of the record, such as
// the command that verifies it or revokes a grant, while those that run stay with the real one. keep is set by a process that makes
// the file.
func (p *postgres) sameSchema(dir string, keep bool) error {
	path := p.path.Load()
	if path == nil {
		return nil // there is no schema, and no process goes on without one
	}
	now := strings.TrimSuffix(*path, ", pg_temp")
	file := filepath.Join(dir, "postgres.schema")
	was, err := plainfile.Read(file, maxSchema)
	if errors.Is(err, fs.ErrNotExist) && keep {
		return makeFile(dir, file, now)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && string(was) != now {
		err = &databaseError{
			reason: fmt.Sprintf("its search path leads to the schema %s, and led to %s before", sandboxmcp.Quote(now), sandboxmcp.Quote(string(was))),
			hint:   "see who has changed the search path of the role or of the database; if the tables were moved on purpose, remove the file " + file,
		}
	}
	return err
}

// makeFile makes a file with a content at once.
func makeFile(dir, file, content string) error {
	tmp := filepath.Join(dir, ".schema-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}
