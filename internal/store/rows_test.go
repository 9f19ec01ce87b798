package store_test

import (
	"strconv"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Each row is new once, and only so many are.
func TestToldIsBounded(t *testing.T) {
	var told store.Told
	for _, want := range []int{1000, 0} {
		news := 0
		for n := range 2000 {
			if told.New(strconv.Itoa(n)) {
				news++
			}
		}
		if news != want {
			t.Errorf("got %d new rows, want %d", news, want)
		}
	}
	if told.New("another") {
		t.Error("got another new row")
	}
}
