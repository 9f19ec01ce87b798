package sandboxmcp

import "time"

// EgressAsk asks a person to open a domain to the programs of a namespace.
type EgressAsk struct {
	Domain    string        `json:"domain"`           // as [ParseDomain] reads it
	Port      int           `json:"port,omitempty"`   // port, if Domain has none; 0: that of Domain
	Reason    string        `json:"reason,omitempty"` // written by a model, so it need not be true
	SessionID SessionID     `json:"session_id,omitempty"`
	RequestID RequestID     `json:"request_id,omitempty"` // run whose connection waits for the answer; empty: no run waits
	Wait      time.Duration `json:"wait_ns,omitempty"`    // how long to wait for the answer; 0: do not wait
}
