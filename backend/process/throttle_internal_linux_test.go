package process

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type noted struct {
	name string
	ops  *[]string
	fail error
}

func (n noted) LiftQuota() error    { *n.ops = append(*n.ops, "lift "+n.name); return n.fail }
func (n noted) Yield() error        { *n.ops = append(*n.ops, "yield "+n.name); return n.fail }
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

// TestASlowEndYields: a sandbox whose processes take longer than slowEnd to end gets only processor
// time that no other process wants.
func TestASlowEndYields(t *testing.T) {
	for took, want := range map[time.Duration][]string{
		slowEnd - time.Millisecond: {"lift group", "restore group"},
		slowEnd + time.Millisecond: {"lift group", "yield group", "restore group"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var ops []string
			restore, err := freely([]throttle{noted{"group", &ops, nil}}, func() error { time.Sleep(took); return nil })
			if err = errors.Join(err, restore()); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * slowEnd)
			if !slices.Equal(ops, want) {
				t.Errorf("an end after %v: got %q, want %q", took, ops, want)
			}
		})
	}
}
