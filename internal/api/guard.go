package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// GuardHandler is what a server offers of the limits that a namespace keeps, and
// of what happens in it.
type GuardHandler interface {
	// SetLimits changes the limits of a namespace, or, when the change names
	// nothing, tells them.
	SetLimits(ctx context.Context, c sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error)

	// Events returns the last events of a namespace, or of all when it is empty.
	Events(ns sandboxmcp.Namespace) []sandboxmcp.Event

	// Subscribe returns a channel of what happens from now on, and Follow one that
	// begins with the last events. Stop ends it.
	Subscribe(ns sandboxmcp.Namespace) (events <-chan sandboxmcp.Event, stop func())
	Follow(ns sandboxmcp.Namespace) (events <-chan sandboxmcp.Event, stop func())
}

const (
	maxFollowers = 64              // at a time
	writeTimeout = 4 * callTimeout // for one event, until a follower is given up
)

func (s *Server) guardRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/limits", s.setLimits)
	mux.HandleFunc("GET /v1/events", s.listEvents)
	mux.HandleFunc("GET /v1/events/follow", s.followEvents)
}

// limitsRequest is a [sandboxmcp.LimitsChange].
type limitsRequest struct {
	Namespace sandboxmcp.Namespace `json:"namespace"`
	Limits    sandboxmcp.Limits    `json:"limits"`
	Reset     bool                 `json:"reset,omitempty"`
	Strict    bool                 `json:"strict,omitempty"`
}

func (s *Server) setLimits(w http.ResponseWriter, r *http.Request) {
	var req limitsRequest
	err := read(w, r, maxRequest, &req)
	if err == nil {
		_, err = sandboxmcp.ParseNamespace(string(req.Namespace))
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	done, err := s.handler.SetLimits(r.Context(), sandboxmcp.LimitsChange{Namespace: req.Namespace, Actor: Actor, Limits: req.Limits, Reset: req.Reset, Strict: req.Strict})
	s.reply(w, done, err)
}

type eventList struct {
	Events []sandboxmcp.Event `json:"events"`
}

// spaceOf reads the namespace of a question that may be about all of them.
func spaceOf(form url.Values) (sandboxmcp.Namespace, error) {
	if form.Get("namespace") == "" {
		return "", nil
	}
	return sandboxmcp.ParseNamespace(form.Get("namespace"))
}

func (s *Server) listEvents(w http.ResponseWriter, r *http.Request) {
	ns, err := spaceOf(r.URL.Query())
	if err != nil {
		s.fail(w, err)
		return
	}
	s.answer(w, http.StatusOK, eventList{append([]sandboxmcp.Event{}, s.handler.Events(ns)...)})
}

// followEvents answers until the caller hangs up, cannot keep up at all, or the
// socket closes. What happens waits for nobody here.
func (s *Server) followEvents(w http.ResponseWriter, r *http.Request) {
	form := r.URL.Query()
	ns, err := spaceOf(form)
	recent := false
	if err == nil {
		recent, err = flag(form, "recent")
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	defer s.followers.Add(-1)
	if s.followers.Add(1) > maxFollowers {
		s.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d follow the events of this server already", maxFollowers).WithHint("end one of them first"))
		return
	}
	subscribe := s.handler.Subscribe
	if recent {
		subscribe = s.handler.Follow
	}
	events, stop := subscribe(ns)
	defer stop()
	patient(w)
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	for {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
		if out.Flush() != nil {
			return
		}
		select {
		case e, open := <-events:
			if !open || json.NewEncoder(w).Encode(e) != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.ending:
			return
		}
	}
}

// otherVersion is what is said to a caller of another version of the protocol;
// nil: it is of this one.
func otherVersion(r *http.Request) error {
	first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	n, isVersion := strings.CutPrefix(first, "v")
	if _, err := strconv.ParseUint(n, 10, 16); !isVersion || err != nil || first == "v1" {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "this server speaks version %d of the control protocol and was asked in version %s", Protocol, n).
		WithHint("use the same release of sandboxmcp on both sides").With("protocol", Protocol)
}
