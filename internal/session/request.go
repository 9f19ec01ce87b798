package session

import (
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

const maxTTL = 365 * 24 * time.Hour

// Complete fills in the id and the spec of the session of a request; ttl is the default
// lifetime. made reports that it made the id. It fails with invalid_argument.
func Complete(r *sandboxmcp.Request, ttl time.Duration) (made bool, err error) {
	spec := sandboxmcp.SessionSpec{}
	if r.Session != nil {
		spec = *r.Session
	}
	if r.SessionID == "" {
		if r.SessionID = spec.ID; r.SessionID == "" {
			r.SessionID, made = NewID(), true
		}
	}
	if _, err := sandboxmcp.ParseSessionID(string(r.SessionID)); err != nil {
		return made, err
	}
	if spec.TTL == 0 {
		spec.TTL = ttl
	}
	if spec.TTL < 0 || spec.TTL > maxTTL {
		return made, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "a session cannot live for %s; more than 0 and at most %s are allowed", spec.TTL, maxTTL)
	}
	spec.ID = r.SessionID
	r.Session = &spec
	return made, nil
}

// Inherit gives the request that makes a session what its spec says and the request leaves out.
func Inherit(r *sandboxmcp.Request) {
	spec := r.Session
	if r.Language == "" {
		r.Language = spec.Language
	}
	r.Limits = r.Limits.Over(spec.Limits)
	r.Strict, r.Modest = r.Strict || spec.Strict, r.Modest || spec.Modest
	if r.Backend == "" {
		r.Backend = spec.Backend
	}
}

// Join puts a request into a live session, and returns the session's limits. It fails with
// invalid_argument if the request wants other limits than the session has.
func (s *Session) Join(r *sandboxmcp.Request) (sandboxmcp.Limits, error) {
	info := s.Info()
	for _, l := range []struct {
		name        string
		asked, have float64
	}{
		{"max_ram_mb", float64(r.Limits.MaxRAMMB), float64(info.Limits.MaxRAMMB)},
		{"max_cpu_cores", r.Limits.MaxCPUCores, info.Limits.MaxCPUCores},
		{"max_processes", float64(r.Limits.MaxProcesses), float64(info.Limits.MaxProcesses)},
	} {
		if l.asked != 0 && l.asked != l.have {
			return info.Limits, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s of session %s is %g, and is set when the session is made", l.name, sandboxmcp.Quote(string(info.ID)), l.have).
				WithHint("leave it out, or make another session whose limits have it")
		}
	}
	if r.Language == "" {
		r.Language = info.Language
	}
	r.Backend = info.Backend
	return info.Limits, nil
}
