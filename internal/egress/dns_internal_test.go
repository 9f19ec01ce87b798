package egress

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
)

// TestManyQuestions: the server does not parse a message with many questions, each of which points to one long name.
func TestManyQuestions(t *testing.T) {
	msg := append(make([]byte, 12), strings.Repeat("\x01a", 126)+"\x00\x00\x01\x00\x01"...)
	count := uint16(1)
	for ; len(msg) < dnsMessage-6; count++ {
		msg = append(msg, 0xc0, 12, 0, 1, 0, 1)
	}
	binary.BigEndian.PutUint16(msg[4:], count)
	l := &Link{ledger: &ledger{max: 1}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	answer := l.answer(msg)
	runtime.ReadMemStats(&after)
	if len(answer) != 12 || answer[3]&15 != 1 {
		t.Errorf("got %x, want a format error", answer)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
		t.Errorf("got %d bytes of memory for %d questions, want few", got, count)
	}
}
