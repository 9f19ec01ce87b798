package watch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// The kernel keeps a record of each mapping of a process, and no count of them can be read. A process may have 65 530
// mappings with a few pages, so their records count as memory of the sandbox. Only the list of mappings tells how many
// there are. It is read if their number may matter: a process has at most one mapping for each page of its address space.
const (
	// mappingBytes are those of a mapping: its record and its place in the tree (220 to 240 bytes), and the file that it
	// keeps open, or the links to its memory.
	mappingBytes = 512
	// linkBytes are those of a link to the memory of an ancestor that the process was forked from.
	linkBytes = 64

	// mappingText is how many bytes of the list count as one mapping, if the list has more. Lines are shorter, except for those
	// of files with long names. A program could choose such names to make a count take long, and the next one come late.
	mappingText = 256

	// mappingsRest is how much processor time a sandbox uses until its mappings are counted again, as a multiple of what the
	// count took.
	mappingsRest = 4
)

// mostMappings returns how many mappings the kernel lets a process have.
func mostMappings() int64 {
	text, _ := os.ReadFile("/proc/sys/vm/max_map_count")
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return min(max(n, 1<<16), manyMappings)
}

// manyMappings bounds mostMappings, so that sums over many processes do not overflow on systems that allow more. It is more
// than a sandbox may have.
const manyMappings = 1 << 24

// mapped is what a Group knows of the mappings of its processes. Only Group.run uses it, except for the fields that mu guards.
type mapped struct {
	kept  map[string]lineage // processes with memory, by number and start time
	alike map[string]int     // how many of them have a layout
	most  int64              // mappings that a process may have; 0: not read yet
	paced

	mu    sync.Mutex
	noted map[string]int64 // bytes of mappings that exact sums have counted since the last measurement; guarded by mu
}

// paced says when to count again. Such counts cost the server more time the more the sandbox holds.
type paced struct {
	counted time.Duration // processor time of the sandbox at the last count
	rest    time.Duration // processor time that the sandbox uses until the next count is due
	at      time.Time     // when the last count was
}

// lineage is a process whose mappings are counted.
type lineage struct {
	layout    string // see seen.layout
	ancestors int    // that it was forked from, without executing another program
	bytes     int64  // of its mappings when they were last counted
}

// note stores how many bytes the mappings of a process take, for takeNotes. It may be called concurrently.
func (m *mapped) note(id string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noted == nil {
		m.noted = map[string]int64{}
	}
	m.noted[id] = bytes
}

// takeNotes copies the noted sizes to m.kept, for processes that are there, and drops them.
func (m *mapped) takeNotes() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, bytes := range m.noted {
		if k, known := m.kept[id]; known {
			k.bytes = bytes
			m.kept[id] = k
		}
	}
	m.noted = nil
}

// look updates m for the living processes, given by number and start time, and sets seen.mapped of each.
func (m *mapped) look(now map[string]seen) {
	m.takeNotes()
	ids, last := make(map[string]string, len(now)), m.kept // ids by number
	m.kept, m.alike = make(map[string]lineage, len(now)), make(map[string]int, 1)
	for id, s := range now {
		ids[numberOf(id)] = id
		if s.reserved > 0 {
			m.alike[s.layout]++
		}
	}
	for id, s := range now {
		m.add(id, now, ids, last)
		s.mapped, s.most = m.kept[id].bytes, m.mostOf(id, s)
		now[id] = s
	}
}

// add adds a process after its parent. A process whose parent has ended counts as a fork of the one with the most ancestors
// that has the same layout.
func (m *mapped) add(id string, now map[string]seen, ids map[string]string, last map[string]lineage) {
	s := now[id]
	if _, done := m.kept[id]; done || s.reserved == 0 {
		return
	}
	if k, known := last[id]; known && k.layout == s.layout {
		m.kept[id] = k
		return
	}
	k := lineage{layout: s.layout}
	m.kept[id] = k
	if parent, ok := ids[s.parent]; ok && now[parent].layout == s.layout {
		m.add(parent, now, ids, last)
		k.ancestors = m.kept[parent].ancestors + 1
	} else {
		for _, other := range last {
			if other.layout == s.layout {
				k.ancestors = max(k.ancestors, other.ancestors+1)
			}
		}
	}
	m.kept[id] = k
}

// each returns the bytes of each mapping of a process. A mapping has a link for each ancestor that lives or has another
// descendant that lives.
func (m *mapped) each(id string) int64 {
	k := m.kept[id]
	return mappingBytes + linkBytes*int64(min(k.ancestors, 2*m.alike[k.layout]))
}

// mostOf returns the most bytes that the mappings of a process can take.
func (m *mapped) mostOf(id string, s seen) int64 {
	if m.most == 0 {
		m.most = mostMappings()
	}
	return min(s.reserved/int64(os.Getpagesize()), m.most) * m.each(id)
}

// due reports whether the sandbox, which has now used the given processor time, has run enough since the last count. A count is
// also due if the sandbox has run at all and the last count is long ago: counts that are seldom cost little.
func (m *paced) due(used time.Duration, now time.Time) bool {
	return m.at.IsZero() || used < m.counted || used-m.counted >= m.rest || used != m.counted && now.Sub(m.at) >= max(idleLong, m.rest)
}

// mappings returns the memory of the mappings of the living processes. If a count is due, it counts them if they could take
// more than room, or if memory has outlived its process. Otherwise it uses the last count. If room is negative, the pages alone
// seem to exceed the limit. Then mappings does not count, because the exact sum follows, which counts mappings itself.
func (w *Group) mappings(now map[string]seen, used time.Duration, room int64) (sum int64) {
	m := &w.mapped
	var most int64
	for id, s := range now {
		most += m.mostOf(id, s)
	}
	if room >= 0 && (most > room || len(w.outlived.left) > 0) && m.due(used, time.Now()) {
		w.countMappings(now, used, room)
	}
	for id, s := range now {
		sum += min(m.kept[id].bytes, m.mostOf(id, s))
	}
	return sum
}

// countMappings counts the mappings of the living processes, until they take more than room. A process that does not answer in
// time counts with the most that it may have.
func (w *Group) countMappings(now map[string]seen, used time.Duration, room int64) {
	m, patience, sure, sum := &w.mapped, mostPatience, true, int64(0)
	var took atomic.Int64
	for id, s := range now {
		k, known := m.kept[id]
		if !known {
			continue
		}
		outside, path, each, most := w.outside, s.path, m.each(id), m.mostOf(id, s)
		size, how := w.exact.read(numberOf(id), func() (int64, bool) {
			bytes := timed(func() int64 { return w.bytesOf(outside, path, each, most) })
			took.Add(int64(bytes.took))
			return bytes.value, bytes.value > 0
		}, patience)
		switch how {
		case exactly:
			k.bytes = size
		case late, pending:
			k.bytes, sure = most, false
		case nothing:
		}
		if how == late {
			patience = max(patience/2, leastPatience)
		}
		m.kept[id] = k
		if sum += k.bytes; sum > room {
			break
		}
	}
	m.counted, m.at, m.rest = used, time.Now(), max(idleCPU, mappingsRest*time.Duration(took.Load()))
	if !sure {
		m.rest = 0
	}
}

// bytesOf returns how many bytes the mappings of a process take, of which each takes so many, by its path in /proc. A process
// that hides them counts with the most. bytesOf may be called concurrently.
func (w *Group) bytesOf(outside bool, path string, each, most int64) int64 {
	dir := unix.AT_FDCWD
	if outside {
		path = "/proc/" + path
	} else {
		dir = w.slot.Dirs[jail.DirProc]
	}
	n, hidden := mappingsIn(dir, path)
	if hidden {
		return most
	}
	return n * each
}

// mappingsIn returns how many mappings a process has, by its path in a directory. If the list has long lines, a mapping counts
// as several; see mappingText. hidden reports that the server may not read the list: without root that is so if the process
// runs a file of another user that is executable and not readable.
func mappingsIn(dir int, path string) (n int64, hidden bool) {
	fd, err := unix.Openat(dir, path+"/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, errors.Is(err, fs.ErrPermission)
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 8<<10) // the kernel shows some 4 KiB at a time
	var text int64
	for {
		got, err := unix.Read(fd, buf)
		if got <= 0 || err != nil {
			return max(n, text/mappingText), false
		}
		text += int64(got)
		n += int64(bytes.Count(buf[:got], []byte{'\n'}))
	}
}

// maxMappings is how many mappings the processes of a sandbox may have together. To end them, the kernel needs some 0.6 µs
// for each.
const maxMappings = 1 << 20

// mostMappings returns how many mappings a process may have, if its address space has so many pages.
func (s *Target) mostMappings(pages int64) int64 {
	if s.mappingsEach == 0 {
		s.mappingsEach = mostMappings()
	}
	return min(pages, s.mappingsEach)
}

// overMappings returns a description if the processes have too many mappings, and "" otherwise. It counts them only if
// possible, the most that they could have, is too many. A count can take longer than one look, because programs can delay it.
// A later look then gets the result.
func (s *Target) overMappings(o *Objects, processes []string, possible int64) string {
	if s.mappings.idle() {
		if possible <= maxMappings {
			return ""
		}
		if time.Now().Before(s.mappingsFrom) {
			s.counted = -idleCPU // count it then, although its programs may not run until then
			return ""
		}
	}
	each := s.mostMappings(math.MaxInt64)
	count, done := ask(o, s, &s.mappings, "mappings", func() int64 { return countMappings(processes, maxMappings, each) })
	if !done {
		s.counted = -idleCPU // count it again
		return ""
	}
	s.mappingsFrom = time.Now().Add(max(s.restAfter(count.took), tablesRest*count.took))
	if count.value <= maxMappings {
		return ""
	}
	return fmt.Sprintf("more than %d mappings", maxMappings)
}

// countMappings counts the mappings of processes, until they are more than limit. If the first thread of one has ended, the
// kernel shows them at the others. One that hides them counts with the most that its address space has room for, up to each.
func countMappings(processes []string, limit, each int64) (sum int64) {
	for _, p := range processes {
		n, hidden := mappingsIn(unix.AT_FDCWD, "/proc/"+p)
		if n == 0 && !hidden {
			tasks, _ := readNames("/proc/" + p + "/task")
			for _, t := range tasks {
				if n, hidden = mappingsIn(unix.AT_FDCWD, "/proc/"+p+"/task/"+t); n > 0 || hidden {
					break
				}
			}
		}
		if hidden {
			n = min(tablesOf(p).pages, each)
		}
		if sum += n; sum > limit {
			break
		}
	}
	return sum
}
