package share_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/share"
)

func try(b *share.Bound, caller string, size int64) *share.Place {
	p, _ := b.Try(share.Ask{Caller: caller, Size: size})
	return p
}

// leftNothing checks that a bound holds nothing after all places were left.
func leftNothing(t *testing.T, b *share.Bound, places ...*share.Place) {
	t.Helper()
	for _, p := range places {
		p.Leave()
		p.Leave()
	}
	if n := b.Held(); n != 0 {
		t.Errorf("got %d held at the end, want 0", n)
	}
}

// TestOneCallerLeavesRoom: what one caller holds is refused before others have no room. The first place
// of a caller may take all that is left, and a caller who is alone gets everything.
func TestOneCallerLeavesRoom(t *testing.T) {
	b := share.New(100, time.Second)
	var places []*share.Place
	for range 100 {
		if p := try(b, "greedy", 5); p != nil {
			places = append(places, p)
		}
	}
	if n := b.Held(); n != 50 {
		t.Errorf("got %d held by one caller, want 50", n)
	}
	if _, full := b.Try(share.Ask{Caller: "greedy", Size: 5}); full == nil || !full.Own || full.Held != 50 {
		t.Errorf("got %+v for one more, want that the caller holds 50", full)
	}
	p := try(b, "other", 50)
	if p == nil {
		t.Fatal("got the first of another caller refused, want it held")
	}
	if _, full := b.Try(share.Ask{Caller: "third", Size: 1}); full == nil || full.Own || full.Held != 100 {
		t.Errorf("got %+v when all is held, want that", full)
	}
	leftNothing(t, b, append(places, p)...)
	places = nil
	for range 20 {
		p, full := b.Try(share.Ask{Caller: "alone", Size: 5, Alone: true})
		if full != nil {
			t.Fatalf("got %+v for a caller who is alone, want everything", full)
		}
		places = append(places, p)
	}
	if _, full := b.Try(share.Ask{Caller: "alone", Size: 5, Alone: true}); full == nil || full.Own {
		t.Errorf("got %+v when all is held, want that", full)
	}
	leftNothing(t, b, places...)
}

// TestWhoHoldsLeastIsNext: of those that wait, whoever came first, and one whose client has gone is last.
func TestWhoHoldsLeastIsNext(t *testing.T) {
	b := share.New(2, time.Hour)
	gone := make(chan struct{})
	close(gone)
	var held []*share.Place
	waiting := map[string]*share.Place{}
	enter := func(name, caller string, gone <-chan struct{}) {
		if p := b.Enter(share.Ask{Caller: caller, Size: 1, Gone: gone}); p.Fits() {
			held = append(held, p)
		} else {
			waiting[name] = p
		}
	}
	for _, name := range []string{"1", "2", "3", "4"} {
		enter("greedy "+name, "greedy", nil)
	}
	enter("gone", "left", gone)
	enter("other", "other", nil)
	if len(held) != 2 || len(waiting) != 4 {
		t.Fatalf("got %d held and %d waiting, want 2 and 4", len(held), len(waiting))
	}
	var order []string
	for len(waiting) > 0 {
		next := held[0]
		held = held[1:]
		next.Leave()
		for name, p := range waiting {
			if p.Fits() {
				order, held = append(order, name), append(held, p)
				delete(waiting, name)
			}
		}
	}
	if want := []string{"other", "greedy 3", "greedy 4", "gone"}; !slices.Equal(order, want) {
		t.Errorf("got the order %q, want %q", order, want)
	}
	leftNothing(t, b, held...)
}

// TestTheSlowestOfTheGreediestIsEnded: when another caller waits who holds less, and not before it had
// its time. A caller's own places never end each other.
func TestTheSlowestOfTheGreediestIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 5 * time.Second
		b := share.New(4, patience)
		begun := time.Now()
		var ended []string
		enter := func(name, caller string) (p *share.Place) {
			p = b.Enter(share.Ask{Caller: caller, Size: 2, End: func() {
				ended = append(ended, name)
				if took := time.Since(begun); took < patience {
					t.Errorf("%s was ended after %v, want %v", name, took, patience)
				}
				go p.Leave()
			}})
			return p
		}
		first, second, own := enter("first", "greedy"), enter("second", "greedy"), enter("own", "greedy")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := own.Wait(ctx); err == nil || len(ended) > 0 {
			t.Fatalf("got %v and %q ended by a place of the same caller, want none", err, ended)
		}
		first.Begin(nil) // cannot be ended any more
		second.Begin(second.End)
		begun = time.Now()
		other := enter("other", "other")
		if err := other.Wait(t.Context()); err != nil || own.Fits() {
			t.Fatalf("got %v, want a place before one of the caller who holds most", err)
		}
		if !slices.Equal(ended, []string{"second"}) || !second.Ended() || first.Ended() {
			t.Errorf("got %q ended, want the second", ended)
		}
		large := b.Enter(share.Ask{Caller: "large", Size: 9})
		for _, p := range []*share.Place{first, own, other} {
			p.Leave()
		}
		if !large.Fits() {
			t.Error("got a place above the bound that waits for ever, want it held alone")
		}
		leftNothing(t, b, large)
	})
}

// TestAClientThatHasGoneEndsNothing: what it waits for may take as long as it does.
func TestAClientThatHasGoneEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := share.New(1, time.Second)
		gone := make(chan struct{})
		close(gone)
		held := b.Enter(share.Ask{Caller: "honest", Size: 1, End: func() { t.Error("got a place ended for a client that has gone") }})
		left := b.Enter(share.Ask{Caller: "left", Size: 1, Gone: gone})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if left.Wait(ctx) == nil || held.Ended() {
			t.Error("got the place for a client that has gone, want it held by the other caller")
		}
		leftNothing(t, b, held, left)
	})
}

// TestWhatWasOnlyClaimedKeepsNobodyOut: a caller who claims much and holds little is refused more of its
// own, and others are not. What arrives beyond the bound ends the slowest of the caller who holds most.
func TestWhatWasOnlyClaimedKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := share.New(100, 5*time.Second)
		claim := func(caller string, size int64, end func()) *share.Place {
			p, _ := b.Claim(share.Ask{Caller: caller, Size: size, End: end})
			return p
		}
		hold := func(p *share.Place, n int64) bool { return p.Hold(t.Context(), n, 20*time.Second) }
		var slow *share.Place
		slow = claim("greedy", 60, func() { go slow.Leave() })
		if claim("greedy", 60, nil) != nil {
			t.Error("got a second claim of the same caller held, want it refused")
		}
		other := claim("other", 90, nil)
		if other == nil || !hold(other, 30) || !hold(slow, 60) {
			t.Fatal("got what fits refused, want it held")
		}
		if !hold(other, 60) || !slow.Ended() {
			t.Error("got the rest of the other caller refused, want the one who holds most ended")
		}
		if hold(slow, 1) {
			t.Error("got more held by a place that was ended")
		}
		third := claim("third", 1, nil)
		if third == nil || !hold(third, 10) {
			t.Error("got a place of unknown size refused, want what fits held")
		}
		if hold(third, 1) {
			t.Error("got more than the bound held")
		}
		leftNothing(t, b, other, third)
	})
}
