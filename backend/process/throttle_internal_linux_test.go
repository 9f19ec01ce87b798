package process

import (
	"errors"
	"slices"
	"testing"
)

type noted struct {
	name string
	ops  *[]string
	fail error
}

func (n noted) LiftQuota() error    { *n.ops = append(*n.ops, "lift "+n.name); return n.fail }
func (n noted) RestoreQuota() error { *n.ops = append(*n.ops, "restore "+n.name); return n.fail }

// TestTheQuotaIsLiftedBeforeTheKill: also where one of the limits cannot be
// lifted, and the limits hold again only after the kill.
func TestTheQuotaIsLiftedBeforeTheKill(t *testing.T) {
	var ops []string
	broken := errors.New("broken")
	limits := []throttle{noted{"group", &ops, broken}, noted{"watch", &ops, nil}}
	restore, err := freely(limits, func() error { ops = append(ops, "kill"); return nil })
	if err != nil {
		t.Errorf("the kill: got %v, want nil", err)
	}
	if err := restore(); !errors.Is(err, broken) {
		t.Errorf("a limit that does not hold again: got %v, want %v", err, broken)
	}
	want := []string{"lift group", "lift watch", "kill", "restore group", "restore watch"}
	if !slices.Equal(ops, want) {
		t.Errorf("got %q, want %q", ops, want)
	}
}
