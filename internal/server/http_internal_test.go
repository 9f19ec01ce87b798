package server

import (
	"strconv"
	"testing"
)

// TestSomeSessionsAreKeptForOthers: callers who open as many sessions as they can leave places for others.
func TestSomeSessionsAreKeptForOthers(t *testing.T) {
	e := &endpoint{s: New(Config{}), owners: map[string]string{}, begun: map[string]int{}}
	open := map[string]int{}
	for caller := range 6 {
		for range maxSessionsEach + 1 {
			name := strconv.Itoa(caller)
			if e.admitSession(name) == nil {
				open[name]++
			}
		}
	}
	for name, want := range map[string]int{"0": maxSessionsEach, "2": maxSessionsEach, "3": 128, "4": 64, "5": 32} {
		if open[name] != want {
			t.Errorf("caller %s: got %d sessions, want %d", name, open[name], want)
		}
	}
}
