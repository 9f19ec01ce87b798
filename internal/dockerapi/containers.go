package dockerapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
)

// Container describes a container that is made.
type Container struct {
	Image        string
	User         string            `json:",omitempty"`
	Hostname     string            `json:",omitempty"`
	WorkingDir   string            `json:",omitempty"`
	Entrypoint   []string          // nil: the image's
	Cmd          []string          // arguments; nil without an Entrypoint: the image's
	Env          []string          // beside the image's
	Labels       map[string]string `json:",omitempty"`
	Healthcheck  *Healthcheck      `json:",omitempty"` // nil: the image's
	AttachStdin  bool
	AttachStdout bool
	AttachStderr bool
	OpenStdin    bool
	StdinOnce    bool // stdin ends with the first client that was attached
	HostConfig   HostConfig
}

// Healthcheck is a command that the engine runs in a container. The command {"NONE"} disables the health check.
type Healthcheck struct{ Test []string }

// HostConfig is the part of a container's description that concerns the engine's machine.
type HostConfig struct {
	NetworkMode    string            `json:",omitempty"`
	IpcMode        string            `json:",omitempty"`
	CgroupnsMode   string            `json:",omitempty"`
	Runtime        string            `json:",omitempty"`
	CapAdd         []string          `json:",omitempty"`
	CapDrop        []string          `json:",omitempty"`
	SecurityOpt    []string          `json:",omitempty"`
	ReadonlyRootfs bool              `json:",omitempty"`
	MaskedPaths    []string          `json:",omitzero"` // nil: the engine's usual ones; empty: none
	ReadonlyPaths  []string          `json:",omitzero"` // as before
	Tmpfs          map[string]string `json:",omitempty"`
	Mounts         []Mount           `json:",omitempty"`
	Sysctls        map[string]string `json:",omitempty"`
	DNS            []netip.Addr      `json:"Dns,omitempty"`
	LogConfig      LogConfig
	Init           bool // the engine's init is process 1; also sent if false, because an engine may be configured with another default
	AutoRemove     bool `json:",omitempty"` // when it ends
	OomScoreAdj    int  `json:",omitempty"`

	Memory     int64    `json:",omitempty"` // bytes
	MemorySwap int64    `json:",omitempty"` // bytes of memory and swap
	NanoCPUs   int64    `json:"NanoCpus,omitempty"`
	PidsLimit  int64    `json:",omitempty"`
	Ulimits    []Ulimit `json:",omitempty"`
}

// LogConfig names the engine's log of a container; an empty Type is the usual one.
type LogConfig struct{ Type string }

// Ulimit is a resource limit of processes.
type Ulimit struct {
	Name       string
	Soft, Hard int64
}

// Mount is a directory that a container shows.
type Mount struct {
	Type        string // such as bind
	Source      string
	Target      string
	ReadOnly    bool         `json:",omitempty"`
	BindOptions *BindOptions `json:",omitempty"`
}

// BindOptions are options of a mount of type bind.
type BindOptions struct {
	Propagation string `json:",omitempty"`
}

// ContainerCreate makes a container and returns its id. IsNotFound is true of the error if there is no such image.
func (a *Client) ContainerCreate(ctx context.Context, c Container) (id string, err error) {
	var made struct {
		ID string `json:"Id"`
	}
	err = a.Call(ctx, Request{Method: http.MethodPost, Path: "/containers/create", Body: c}, &made)
	if err == nil && made.ID == "" {
		err = errors.New("the engine does not name the container that it has made")
	}
	return made.ID, err
}

// ContainerStart starts a container. It succeeds if the container runs already.
func (a *Client) ContainerStart(ctx context.Context, id string) error {
	return a.onContainer(ctx, Request{Method: http.MethodPost, Path: "/start"}, id, nil)
}

// ContainerRemove kills a container, and removes it with its anonymous volumes.
func (a *Client) ContainerRemove(ctx context.Context, id string) error {
	return a.onContainer(ctx, Request{Method: http.MethodDelete, Query: url.Values{"force": {"1"}, "v": {"1"}}}, id, nil)
}

// ContainerLimitCPU sets the processor limit of a container, in billionths of a processor.
func (a *Client) ContainerLimitCPU(ctx context.Context, id string, nano int64) error {
	body := struct {
		NanoCPUs int64 `json:"NanoCpus"`
	}{nano}
	return a.onContainer(ctx, Request{Method: http.MethodPost, Path: "/update", Body: body}, id, nil)
}

// What ContainerWait waits for.
const (
	NotRunning = "not-running"
	Removed    = "removed"
)

// ContainerWait waits until a container does not run, or is removed, and returns the status of its end.
func (a *Client) ContainerWait(ctx context.Context, id, until string) (status int64, err error) {
	var end struct {
		StatusCode int64
		Error      struct{ Message string }
	}
	err = a.onContainer(ctx, Request{Method: http.MethodPost, Path: "/wait", Query: url.Values{"condition": {until}}}, id, &end)
	if err == nil && end.Error.Message != "" {
		err = errors.New(end.Error.Message)
	}
	return end.StatusCode, err
}

// State is what an engine reports about a container.
type State struct {
	State struct {
		Pid       int // of its first process; 0: it does not run
		StartedAt string
		OOMKilled bool
	}
	HostConfig struct{ Runtime string }
}

// ContainerInspect returns the state of a container.
func (a *Client) ContainerInspect(ctx context.Context, id string) (s State, err error) {
	return s, a.onContainer(ctx, Request{Method: http.MethodGet, Path: "/json"}, id, &s)
}

// Listed is a container in a list.
type Listed struct {
	ID     string            `json:"Id"`
	Image  string            `json:"ImageID"` // the id of its image
	Labels map[string]string // its own, and those of its image
}

// ContainerList returns the containers with a label, also those that do not run. The label is a name, or
// NAME=VALUE.
func (a *Client) ContainerList(ctx context.Context, label string) (list []Listed, err error) {
	q := filters(map[string]string{"label": label})
	q.Set("all", "1")
	return list, a.Call(ctx, Request{Method: http.MethodGet, Path: "/containers/json", Query: q}, &list)
}

// Limits are the limits of a container as the engine has read them back; 0: not told.
type Limits struct {
	Memory uint64 // bytes
	Tasks  uint64
}

// ContainerLimits returns the limits of a container. It takes up to a second.
func (a *Client) ContainerLimits(ctx context.Context, id string) (Limits, error) {
	var s struct {
		Memory struct {
			Limit uint64 `json:"limit"`
		} `json:"memory_stats"`
		Tasks struct {
			Limit uint64 `json:"limit"`
		} `json:"pids_stats"`
	}
	q := url.Values{"stream": {"false"}, "one-shot": {"true"}}
	err := a.onContainer(ctx, Request{Method: http.MethodGet, Path: "/stats", Query: q}, id, &s)
	return Limits{s.Memory.Limit, s.Tasks.Limit}, err
}

// Stream is stdin, stdout and stderr of a container. Read returns stdout and stderr in frames: a byte that
// names the stream, three zeros, and the size of what follows as four bytes, the highest first.
type Stream struct {
	*bufio.Reader
	io.WriteCloser
}

// ContainerAttach returns the streams of a container, which need not run yet. ctx bounds only the call: the
// caller closes the stream.
func (a *Client) ContainerAttach(ctx context.Context, id string) (*Stream, error) {
	path, err := containerPath(id)
	if err != nil {
		return nil, err
	}
	q := url.Values{"stream": {"1"}, "stdin": {"1"}, "stdout": {"1"}, "stderr": {"1"}}
	res, err := a.open(ctx, Request{Method: http.MethodPost, Path: path + "/attach", Query: q, upgrade: true})
	if err != nil {
		return nil, err
	}
	if rw, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		return &Stream{bufio.NewReader(rw), rw}, nil
	}
	res.Body.Close()
	return nil, errors.New("the engine answers with no stream")
}

// onContainer makes a call with a path below that of a container.
func (a *Client) onContainer(ctx context.Context, r Request, id string, answer any) error {
	path, err := containerPath(id)
	if err != nil {
		return err
	}
	r.Path = path + r.Path
	return a.Call(ctx, r, answer)
}

// containerPath returns the path of a container. It refuses ids that would name another path.
func containerPath(id string) (string, error) {
	for _, c := range []byte(id) {
		if plain := '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' || c == '-'; !plain {
			return "", errors.New("a container's id has letters and digits only")
		}
	}
	if id == "" {
		return "", errors.New("a container's id is missing")
	}
	return "/containers/" + id, nil
}
