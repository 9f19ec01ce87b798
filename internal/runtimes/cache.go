package runtimes

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

const (
	cacheVersion = 3
	cacheAge     = 24 * time.Hour
	failureAge   = 10 * time.Minute // a failed entry, such as a shim without a chosen version, is examined again after this time
	cacheEntries = 64
	cacheBytes   = 1 << 20
)

// entry is the cached result of examining a hit.
type entry struct {
	Found       fileID      `json:"found"`
	Real        fileID      `json:"real"`
	At          time.Time   `json:"at"`
	Interpreter Interpreter `json:"interpreter"`
	Failure     string      `json:"failure,omitempty"` // why the hit is not a usable interpreter; empty: it is
}

// cacheDisk is the content of the cache file: {"version": 3, "entries": {"<language> <path>
// <choice>": entry}}.
type cacheDisk struct {
	Version int              `json:"version"`
	Entries map[string]entry `json:"entries"`
}

// cache keeps entries in memory and, if CacheFile is set, in a file. A file that cannot be
// read or written only costs time.
type cache struct {
	cfg    Config
	choice string // the environment variables that decide which interpreter a shim chooses

	mu      sync.Mutex
	loaded  bool
	entries map[string]entry
}

func newCache(cfg Config) *cache {
	var choice []string
	for _, kv := range cfg.HomeEnv {
		name, _, _ := strings.Cut(kv, "=")
		if name == "HOME" || slices.ContainsFunc([]string{"PYENV_", "NODENV_", "ASDF_", "MISE_", "RTX_", "FNM_", "VOLTA_"}, func(p string) bool { return strings.HasPrefix(name, p) }) {
			choice = append(choice, kv)
		}
	}
	slices.Sort(choice)
	return &cache{cfg: cfg, choice: strings.Join(choice, " "), entries: map[string]entry{}}
}

func (c *cache) key(lang sandboxmcp.Language, h hit) string {
	return string(lang) + " " + h.path + " " + c.choice
}

// look returns the entry of a hit. It returns false if the files have changed or the entry
// is too old.
func (c *cache) look(lang sandboxmcp.Language, h hit) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loadLocked()
	e, ok := c.entries[c.key(lang, h)]
	if !ok || e.Found != h.id {
		return entry{}, false
	}
	age, limit := c.cfg.Now().Sub(e.At), cacheAge
	if e.Failure != "" {
		limit = failureAge
	}
	if age < 0 || age > limit {
		return entry{}, false
	}
	if e.Failure == "" {
		real, ok := statID(e.Interpreter.Path)
		if !ok || real != e.Real || e.Interpreter.Language != lang || !filepath.IsAbs(e.Interpreter.Path) {
			return entry{}, false
		}
		for _, d := range e.Interpreter.ReadOnlyDirs {
			if info, err := os.Stat(d); err != nil || !info.IsDir() {
				return entry{}, false
			}
		}
	}
	e.Interpreter.ReadOnlyDirs = slices.Clone(e.Interpreter.ReadOnlyDirs)
	if e.Failure == "" {
		e.Interpreter.judge()
	}
	return e, true
}

func (c *cache) loadLocked() {
	if !c.loaded {
		c.loaded = true
		c.entries = c.read()
	}
}

// keep caches the result of an examination and writes the file.
func (c *cache) keep(lang sandboxmcp.Language, h hit, in Interpreter, failure error) entry {
	e := entry{Found: h.id, At: c.cfg.Now(), Interpreter: in}
	if failure != nil {
		e.Failure = failure.Error()
	} else if e.Real, _ = statID(in.Path); e.Real == (fileID{}) {
		e.Failure = "it went away"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[c.key(lang, h)] = e
	c.saveLocked()
	return e
}

// saveLocked merges entries that other processes have written to the file, and writes it.
func (c *cache) saveLocked() {
	if c.cfg.CacheFile == "" {
		return
	}
	for k, v := range c.read() {
		if mine, ok := c.entries[k]; !ok || v.At.After(mine.At) {
			c.entries[k] = v
		}
	}
	c.pruneLocked()
	if err := c.writeLocked(); err != nil {
		c.cfg.Logger.Warn("interpreter cache not written", "error", err)
	}
}

func (c *cache) pruneLocked() {
	for len(c.entries) > cacheEntries {
		oldest := ""
		for k, e := range c.entries {
			if oldest == "" || e.At.Before(c.entries[oldest].At) {
				oldest = k
			}
		}
		delete(c.entries, oldest)
	}
}

// read returns the entries of the cache file. It ignores a file that another user can write
// to, because the file names programs that will be run.
func (c *cache) read() map[string]entry {
	none := map[string]entry{}
	if c.cfg.CacheFile == "" {
		return none
	}
	data, err := readOwn(c.cfg.CacheFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.cfg.Logger.Warn("interpreter cache not read", "error", err)
		}
		return none
	}
	var d cacheDisk
	if json.Unmarshal(data, &d) != nil || d.Version != cacheVersion || d.Entries == nil {
		return none
	}
	return d.Entries
}

func (c *cache) writeLocked() error {
	data, err := json.MarshalIndent(cacheDisk{Version: cacheVersion, Entries: c.entries}, "", "\t")
	if err != nil {
		return fmt.Errorf("encode cache: %w", err)
	}
	return writeOwn(c.cfg.CacheFile, data)
}

var errNotPrivate = errors.New("it is not a private file")

// readOwn reads a file that only this user can write to.
func readOwn(path string) ([]byte, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && (info.Size() > cacheBytes || !ownedByUs(info)) {
		err = errNotPrivate
	}
	if err != nil {
		return nil, err
	}
	data := make([]byte, info.Size())
	n, err := io.ReadFull(f, data)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) { // it has become shorter
		err = nil
	}
	return data[:n], err
}

// writeOwn replaces a file by one that only this user can read.
func writeOwn(path string, data []byte) error {
	temp := path + "." + rand.Text()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write cache: %w", err), os.Remove(temp))
	}
	return nil
}
