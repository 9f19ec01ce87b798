package jail

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
	"golang.org/x/sys/unix"
)

func TestScratch(t *testing.T) {
	f, err := seccomp.Compile(seccomp.Policy{}, seccomp.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	m := ModeUser
	if os.Geteuid() == 0 {
		m = ModeRoot
	}
	t0 := time.Now()
	j, err := Open(Config{Mode: m, FirstUID: 1900000000, Filter: f, ReadOnly: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	fmt.Println("open", time.Since(t0))
	for i := 0; i < 5; i++ {
		t0 = time.Now()
		s, err := j.New(SlotConfig{Size: Size{WorkBytes: 128 << 20, WorkInodes: 20000, TempBytes: 64 << 20, MaxTasks: 160}, WantProc: true})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("slot", time.Since(t0), s.PID(), s.UID(), s.results, s.Dirs)
		t0 = time.Now()
		w, err := s.Observe()
		fmt.Println(time.Since(t0), w, err)
		var pp [2]int
		unix.Pipe2(pp[:], unix.O_CLOEXEC)
		null, _ := unix.Open("/dev/null", unix.O_RDWR, 0)
		t0 = time.Now()
		p, err := s.Start(Command{Argv: []string{"/usr/bin/python3", "-c", "import os;print(os.getresuid(), os.listdir('/'), os.listdir('/proc/self/fd'), os.listdir('/dev'))\ntry: open('/run/program/x','w')\nexcept OSError as e: print(e)\nprint(open('/proc/self/status').read()[-700:])"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/mnt/data", Files: []int{null, pp[1], pp[1]}})
		unix.Close(pp[1])
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		e, err := p.Exit()
		fmt.Println("ran", time.Since(t0), e.Status.ExitStatus(), e.CPU, e.MaxRSS, err)
		b := make([]byte, 65536)
		n, _ := unix.Read(pp[0], b)
		if i == 0 {
			fmt.Println(string(b[:n]))
		}
		t0 = time.Now()
		fmt.Println(s.Kill(), time.Since(t0))
		fmt.Println(s.Close())
	}
}
