package session

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// bridgeOut is the directory below the working directory into which programs put values.
const bridgeOut = ".bridge"

// Bounds of bridged values.
const (
	maxBridgeKey   = 128
	maxBridgeKeys  = 100     // likewise: each is a file in the sandboxes of sessions, which have few
	maxBridgeBytes = 4 << 20 // of one call, and of the values stored for a namespace
)

func checkBridgeKey(k string) error {
	ok := k != "" && len(k) <= maxBridgeKey && !strings.HasPrefix(k, ".")
	for _, c := range k {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-.", c))
	}
	if !ok {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "bridge key %s is not 1 to %d characters of A-Z a-z 0-9 _ - . that begin with no point", sandboxmcp.Quote(k), maxBridgeKey)
	}
	return nil
}

// CheckBridge checks the form of a request to bridge values. CleanValues checks the values.
func CheckBridge(b sandboxmcp.Bridge) error {
	switch {
	case (b.Data == nil) == (b.From == ""):
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "data or from_session is needed, and not both")
	case b.From == "" && len(b.Keys) > 0:
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "keys chooses among the values of from_session, which is missing").WithHint("put only the values of these keys into data")
	}
	if len(b.Keys) > maxBridgeKeys {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d keys are named; %d are allowed at once", len(b.Keys), maxBridgeKeys)
	}
	for _, k := range b.Keys {
		if err := checkBridgeKey(k); err != nil {
			return err
		}
	}
	return nil
}

// CleanValues checks values to bridge. It returns them as clean JSON, with their keys and
// their size.
func CleanValues(data map[string]json.RawMessage) (sandboxmcp.Bridged, error) {
	out := sandboxmcp.Bridged{Data: map[string]json.RawMessage{}, Keys: []string{}}
	if len(data) > maxBridgeKeys {
		return out, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d values are bridged; %d are allowed at once", len(data), maxBridgeKeys)
	}
	for k, v := range data {
		err := checkBridgeKey(k)
		if err != nil {
			return out, err
		}
		if v, err = kernel.CleanJSON(v); err != nil {
			return out, sandboxmcp.Errorf(sandboxmcp.CodeInvalidContent, "the value of %s cannot be bridged: %s", sandboxmcp.Quote(k), err)
		}
		out.Bytes += int64(len(v))
		out.Keys = append(out.Keys, k)
		out.Data[k] = v
	}
	slices.Sort(out.Keys)
	if out.Bytes > maxBridgeBytes {
		return out, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the values have %d bytes; %d are allowed", out.Bytes, int64(maxBridgeBytes)).WithHint("put large data into a file")
	}
	return out, nil
}

// publishedKeys lists the keys of all values that the session's programs have published. It fails
// with invalid_argument if they are too many for one call.
func (l *Live) publishedKeys(ctx context.Context) (keys []string, err error) {
	entries, more, err := l.cfg.Sandbox.Files().List(ctx, bridgeOut, 10*maxBridgeKeys) // with files that are no values
	if err != nil && ctx.Err() != nil {
		return nil, run.Cancelled(ctx)
	}
	if gone := l.goneError(ctx, err); gone != nil {
		return nil, gone
	}
	if err != nil {
		return nil, nil //nolint:nilerr // no directory: nothing was published
	}
	for _, f := range entries {
		if k, ok := strings.CutSuffix(f.Name, ".json"); ok && checkBridgeKey(k) == nil {
			keys = append(keys, k)
		}
	}
	if more || len(keys) > maxBridgeKeys {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "session %s has published more than %d values; %d are allowed at once", sandboxmcp.Quote(string(l.entry.key.id)), maxBridgeKeys, maxBridgeKeys).
			WithHint("choose some of them by keys")
	}
	return keys, nil
}

// Published returns the values that the session's programs have published: those of the
// keys or, without keys, all. They are not masked and not clean. It fails with not_found for
// a key without a value.
func (l *Live) Published(ctx context.Context, keys []string) (map[string]json.RawMessage, error) {
	files := l.cfg.Sandbox.Files()
	if len(keys) == 0 {
		var err error
		if keys, err = l.publishedKeys(ctx); err != nil {
			return nil, err
		}
	}
	data, sum := map[string]json.RawMessage{}, 0
	for _, k := range keys {
		_, text, err := readFile(ctx, files, bridgeOut+"/"+k+".json", maxBridgeBytes)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, run.Cancelled(ctx)
		case errors.Is(err, errLarge):
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the value of %s is larger than %d bytes", sandboxmcp.Quote(k), int64(maxBridgeBytes))
		case err != nil:
			if gone := l.goneError(ctx, err); gone != nil {
				return nil, gone
			}
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "session %s has published no value %s", sandboxmcp.Quote(string(l.entry.key.id)), sandboxmcp.Quote(k)).
				With("key", k)
		}
		data[k] = text
		if sum += len(text); sum > maxBridgeBytes { // bounds the memory that they take here
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the values have more than %d bytes, which is what is allowed", int64(maxBridgeBytes)).WithHint("put large data into a file")
		}
	}
	return data, nil
}

// Provide hands clean values to the session's programs.
func (l *Live) Provide(ctx context.Context, data map[string]json.RawMessage) error {
	err := provide(ctx, l.cfg.Sandbox, data)
	if gone := l.goneError(ctx, err); gone != nil {
		return gone
	}
	return err
}

func provide(ctx context.Context, sb backend.Sandbox, data map[string]json.RawMessage) error {
	list := make([]backend.ProgramFile, 0, len(data))
	for k, v := range data {
		list = append(list, backend.ProgramFile{Name: path.Base(backend.BridgeDir) + "/" + k + ".json", Data: v})
	}
	if err := sb.Provide(ctx, list); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the values do not fit into the session").WithHint("put large data into a file")
		}
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the values could not be handed over").WithCause(err)
	}
	return nil
}

// Values are bridged values for sessions that namespaces create later. They are in memory.
// The zero Values is empty. Its methods may be called concurrently.
type Values struct {
	mu  sync.Mutex
	all map[sandboxmcp.Namespace]map[string]json.RawMessage
}

// Keep adds clean values to those of a namespace. It fails with file_too_large if they are
// too many or too large together: then they would not fit into a new session.
func (b *Values) Keep(ns sandboxmcp.Namespace, data map[string]json.RawMessage) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept, sum, keys := b.all[ns], 0, len(data)
	for k, v := range kept {
		if _, replaced := data[k]; !replaced {
			sum += len(v)
			keys++
		}
	}
	for _, v := range data {
		sum += len(v)
	}
	if keys > maxBridgeKeys {
		return sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the namespace would have %d values for later sessions; %d are allowed", keys, maxBridgeKeys).
			WithHint("replace values of the same keys, or hand these to a session with to_session")
	}
	if sum > maxBridgeBytes {
		return sandboxmcp.Errorf(sandboxmcp.CodeFileTooLarge, "the namespace's values would have %d bytes; %d are allowed", sum, int64(maxBridgeBytes))
	}
	if b.all == nil {
		b.all = map[sandboxmcp.Namespace]map[string]json.RawMessage{}
	}
	if kept == nil {
		kept = map[string]json.RawMessage{}
		b.all[ns] = kept
	}
	maps.Copy(kept, data)
	return nil
}

// Prepare makes the directory into which the programs of a new session put values, and hands
// them those of the namespace.
func (b *Values) Prepare(ctx context.Context, ns sandboxmcp.Namespace, sb backend.Sandbox) error {
	if err := sb.Files().Mkdir(ctx, bridgeOut); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the directory for bridged values could not be made").WithCause(err)
	}
	b.mu.Lock()
	data := maps.Clone(b.all[ns])
	b.mu.Unlock()
	if len(data) == 0 {
		return nil
	}
	return provide(ctx, sb, data)
}
