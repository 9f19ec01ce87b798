package process_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

func cpu() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		_ = syscall.Getrusage(who, &u)
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

func BenchmarkOpenClose(b *testing.B) {
	be := newBackend()(b)
	defer be.Close()
	open := time.Duration(0)
	i := 0
	begin := cpu()
	for b.Loop() {
		i++
		at := time.Now()
		sb, err := be.Open(b.Context(), backend.Spec{ID: fmt.Sprintf("bench%d", i), MemoryBytes: 64 << 20, CPUCores: 1, MaxTasks: 16, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 1 << 20})
		if err != nil {
			b.Fatal(err)
		}
		open += time.Since(at)
		if err := sb.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(open.Microseconds())/float64(b.N), "open-µs/op")
	b.ReportMetric(float64((cpu()-begin).Microseconds())/float64(b.N), "server-cpu-µs/op")
}
