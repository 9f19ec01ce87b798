package store

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const hintElsewhere = "set SANDBOXMCP_STATE_DIR to a directory you can write to"

// reasonOf explains why the state cannot be used, and what to do about it.
func reasonOf(err error) (reason, hint string) {
	var dir *dirError
	var newer *newerError
	switch {
	case errors.As(err, &dir):
		if dir.hint == "" {
			return dir.reason, hintElsewhere
		}
		return dir.reason, dir.hint
	case errors.As(err, &newer):
		return newer.Error(), "use the newer release, or set SANDBOXMCP_STATE_DIR to another directory"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), sqliteCode(err) == sqlite3.SQLITE_FULL, shmFull(err):
		return "no space is left", "free some space, or set SANDBOXMCP_STATE_DIR to a directory on another disk"
	case errors.Is(err, syscall.EROFS), sqliteCode(err) == sqlite3.SQLITE_READONLY:
		return "it is read-only", hintElsewhere
	case errors.Is(err, fs.ErrPermission):
		return "permission denied", hintElsewhere
	case errors.Is(err, syscall.ENOTDIR):
		return "a part of its path is not a directory", hintElsewhere
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return "another process keeps the database locked", "try again; if it lasts, end the process that holds the database"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return "the database is damaged", "move the database and its .head and .fault files away and keep them for examination; the next start makes new ones"
	case sqlite3.SQLITE_CANTOPEN:
		return "the database cannot be opened", hintElsewhere
	case sqlite3.SQLITE_IOERR:
		return "the disk returned an error", "read the system log, or set SANDBOXMCP_STATE_DIR to a directory on another disk"
	}
	return err.Error(), hintElsewhere
}

// sqliteCode returns the primary result code of SQLite in err, or -1.
func sqliteCode(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return -1
	}
	return e.Code() & 0xff
}

// shmFull reports whether SQLite could not enlarge its -shm file. SQLite fails like this
// when it opens a database on a full disk.
func shmFull(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE
}

// unusable reports whether err, returned by a statement of a transaction, is caused by the
// disk or the database and not by the statement.
func unusable(err error) bool {
	if postgresUnusable(err) {
		return true
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
		sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL:
		return true
	}
	return false
}

func isBusy(err error) bool {
	c := sqliteCode(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

// retryBusy calls try until its error is not "busy", ctx ends or the timeout has passed. It
// retries often, because most holders keep the lock for less than a millisecond.
func retryBusy(ctx context.Context, timeout time.Duration, try func() error) error {
	err := try()
	if !isBusy(err) {
		return err
	}
	deadline := time.Now().Add(timeout)
	t := time.NewTimer(0)
	defer t.Stop()
	for n := 0; ; n++ {
		// The pauses are 100 µs, 200, 400 … up to 3.2 ms.
		t.Reset(100 * time.Microsecond << min(n, 5))
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-t.C:
		}
		if err = try(); !isBusy(err) || time.Now().After(deadline) {
			return err
		}
	}
}
